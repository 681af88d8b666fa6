-- inspect: see look.
--
-- ARGV  1 what the readers' lives start with
return look(ARGV[1])
