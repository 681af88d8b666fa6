//! Ways to a server: TLS, unix sockets.

use distlock_core::ErrorKind;
use distlock_sql::{Config, Dialect, Host, Tls};
use distlock_testkit::servers::{Certificates, Setup};

use crate::both;
use crate::server::{Server, locks};

fn trusting(server: &Server, authority: &Certificates) -> Config {
    let mut config = server.config();
    config.tls = Some(Tls {
        ca: Some(authority.ca()),
        ..Tls::default()
    });
    config
}

both! {
    #[test]
    async fn tls_is_verified_and_used(dialect) {
        let (ours, other) = (Certificates::new().unwrap(), Certificates::new().unwrap());
        let user = if dialect == Dialect::Postgres { "postgres" } else { "mysql" };
        if ours.give_to(user).is_err() {
            return distlock_testkit::servers::skip(&format!("the user {user} is not there"));
        }
        let (cert, key) = (ours.server_cert(), ours.server_key());
        let (cert, key) = (cert.display(), key.display());
        let settings = match dialect {
            Dialect::Postgres => ["ssl=on".to_owned(), format!("ssl_cert_file={cert}"), format!("ssl_key_file={key}")],
            Dialect::Mysql => ["--ssl".to_owned(), format!("--ssl-cert={cert}"), format!("--ssl-key={key}")],
        };
        let Some(server) = Server::start_with(dialect, Setup::default().settings(settings)).await else { return };
        // A user who may not come without it.
        let config = match dialect {
            Dialect::Postgres => trusting(&server, &ours),
            Dialect::Mysql => {
                server.sql("CREATE USER secret@'%' REQUIRE SSL").await;
                server.sql("GRANT ALL ON distlock.* TO secret@'%'").await;
                let plain = locks(server.config().user("secret")).await;
                let e = plain.mutex("tls").try_acquire().await.unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
                trusting(&server, &ours).user("secret")
            }
        };
        let a = locks(config).await;
        a.mutex("tls").acquire().await.unwrap().release().await.unwrap();
        if dialect == Dialect::Postgres {
            let encrypted = "SELECT DISTINCT ssl::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                WHERE application_name = 'distlock'";
            assert_eq!(server.sql(encrypted).await, ["true"]);
        }
        // A certificate that somebody else has signed is not believed.
        let b = locks(trusting(&server, &other)).await;
        let e = b.mutex("tls").try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    }

    #[test]
    async fn a_unix_socket_leads_to_the_same_locks(dialect) {
        let Some(server) = Server::start(dialect).await else { return };
        let mut config = server.config();
        config.hosts = vec![Host::Unix(match &server {
            Server::Postgres(server) => server.socket(),
            Server::Mysql(server) => server.socket(),
            Server::External => return,
        })];
        let (a, b) = (locks(config).await, locks(server.config()).await);
        let held = a.mutex("socket").acquire().await.unwrap();
        assert!(b.mutex("socket").try_acquire().await.unwrap().is_none());
        held.release().await.unwrap();
    }
}
