-- aged: wraps an acquisition, so that it also tells how long this server has kept its data, and its clock.
--
-- KEYS  those of the acquisition, and last the stamp: when this server was first asked since it had no data, in ms
-- Gives {what the acquisition gives, age in ms, the time in µs from which tokens are minted}. The stamp is written when it is absent; it goes with the data.
local function acquire()
