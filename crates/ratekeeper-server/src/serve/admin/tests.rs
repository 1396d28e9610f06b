use super::*;

fn admitted(admin: &Admin, fields: &[(&str, &str)]) -> Result<(), u16> {
    at("/v1/reset", admin, fields, Access::Operate).map(drop)
}

fn at(uri: &str, admin: &Admin, fields: &[(&str, &str)], access: Access) -> Result<Caller, u16> {
    let mut request = http::Request::post(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    admin.admits(&parts, access, None).map_err(|refusal| refusal.problem.status)
}

#[test]
fn only_the_whole_token_is_the_token() {
    let admin = Admin::from(Token::new("0123456789abcdef\n").unwrap());
    assert_eq!(admitted(&admin, &[("authorization", "Bearer 0123456789abcdef")]), Ok(()));
    assert_eq!(admitted(&admin, &[("authorization", "bearer 0123456789abcdef")]), Ok(()));
    let wrong =
        ["Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer ", "Basic 0123456789abcdef", "", "B"];
    for value in wrong {
        assert_eq!(admitted(&admin, &[("authorization", value)]), Err(401), "{value}");
    }
    assert_eq!(admitted(&admin, &[]), Err(401));
    assert_eq!(format!("{admin:?}"), "Tokens(Keyring(...))");
}

#[test]
fn a_role_may_do_what_the_roles_below_it_may() {
    let tenant = Tenant { organisation: "7".to_owned(), project: None };
    let roles = [("u", Role::Usage(tenant.clone())), ("r", Role::Read), ("o", Role::Operate)];
    let text = |name: &str| name.repeat(16);
    let tokens = roles.map(|(name, role)| Token::named(name, role, &text(name)).unwrap());
    let admin = Admin::of_tokens(tokens);
    let calls = |name: &str| {
        let bearer = format!("Bearer {}", text(name));
        [Access::Usage, Access::Read, Access::Operate]
            .map(|access| at("/", &admin, &[("authorization", &bearer)], access).map(|caller| caller.tenant))
    };
    assert_eq!(calls("u"), [Ok(Some(tenant)), Err(403), Err(403)]);
    assert_eq!(calls("r"), [Ok(None), Ok(None), Err(403)]);
    assert_eq!(calls("o"), [Ok(None), Ok(None), Ok(None)]);
}

#[test]
fn guesses_are_limited_and_tell_nothing_while_they_are() {
    let admin = Admin::from(Token::new("0123456789abcdef").unwrap());
    for _ in 0..10 {
        assert_eq!(admitted(&admin, &[("authorization", "Bearer wrong")]), Err(401));
    }
    assert_eq!(admitted(&admin, &[("authorization", "Bearer wrong")]), Err(429));
    assert_eq!(admitted(&admin, &[("authorization", "Bearer 0123456789abcdef")]), Err(429));
    assert_eq!(admitted(&admin, &[]), Err(401), "nothing was guessed");
}

#[test]
fn a_token_in_an_address_is_refused_whatever_it_is() {
    let token = Admin::from(Token::new("0123456789abcdef").unwrap());
    let fields = [("authorization", "Bearer 0123456789abcdef"), ("host", "localhost")];
    for admin in [&token, &Admin::Local, &Admin::Off, &Admin::Unset] {
        for query in ["token=0123456789abcdef", "a=1&Access_Token=x", "api_key", "bearer="] {
            let refused = at(&format!("/v1/reset?{query}"), admin, &fields, Access::Read);
            assert_eq!(refused, Err(400), "{query}");
        }
    }
    assert!(at("/v1/reset?a=token", &token, &fields, Access::Read).is_ok());
}

#[test]
fn tokens_that_can_be_guessed_are_refused() {
    for text in
        ["", "short", "with a space in it", &"x".repeat(TOKEN_BYTES_MAX + 1), "caf\u{e9}-caf\u{e9}-caf\u{e9}"]
    {
        assert!(Token::new(text).is_err(), "{text}");
    }
}

#[test]
fn without_a_token_pages_in_a_browser_stay_outside() {
    for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "127.8.8.8"] {
        assert_eq!(admitted(&Admin::Local, &[("host", host)]), Ok(()), "{host}");
        let with_origin = [("host", host), ("origin", "http://localhost:8080")];
        assert_eq!(admitted(&Admin::Local, &with_origin), Err(403), "{host}");
    }
    for host in
        ["example.org", "example.org:8080", "127.0.0.1.example.org", "10.0.0.1", "[2001:db8::1]:80", ""]
    {
        assert_eq!(admitted(&Admin::Local, &[("host", host)]), Err(403), "{host}");
    }
    assert_eq!(admitted(&Admin::Local, &[]), Err(403), "who names no machine");
    assert_eq!(admitted(&Admin::Off, &[("host", "localhost")]), Err(403));
}

#[test]
fn without_a_token_what_a_proxy_passes_on_stays_outside() {
    let fields = [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("via", "1.1 proxy"),
        ("x-real-ip", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-prefix", "/limits"),
        ("x-forwarded-client-cert", "By=x"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ];
    for field in fields {
        assert_eq!(admitted(&Admin::Local, &[("host", "127.0.0.1:8080"), field]), Err(403), "{field:?}");
        let token = Admin::from(Token::new("0123456789abcdef").unwrap());
        let with_token = [("authorization", "Bearer 0123456789abcdef"), field];
        assert_eq!(admitted(&token, &with_token), Ok(()), "a token is as good as before");
    }
    for site in ["none", "same-origin"] {
        assert_eq!(admitted(&Admin::Local, &[("host", "localhost"), ("sec-fetch-site", site)]), Ok(()));
    }
    let (mut old, ()) =
        http::Request::post("/v1/reset").header("host", "127.0.0.1:8080").body(()).unwrap().into_parts();
    old.version = http::Version::HTTP_10;
    assert_eq!(
        Admin::Local.admits(&old, Access::Read, None).map_err(|refusal| refusal.problem.status),
        Err(403)
    );
}

#[test]
fn a_token_in_a_file_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("0123456789abcdef");
    let admin = Admin::Tokens(Keyring::open(Some(path.clone()), None, None).unwrap());
    let with = |token: &str| admitted(&admin, &[("authorization", &format!("Bearer {token}"))]);
    assert_eq!(admin.read_again().unwrap(), Reread::Same);
    write("short");
    let error = format!("{:#}", admin.read_again().unwrap_err());
    assert!(error.starts_with("admin-token-file: ") && !error.contains("short"), "{error}");
    assert_eq!(with("0123456789abcdef"), Ok(()), "the one before stays");
    write("fedcba9876543210");
    assert_eq!(admin.read_again().unwrap(), Reread::Renewed);
    assert_eq!((with("fedcba9876543210"), with("0123456789abcdef")), (Ok(()), Err(401)));
    assert_eq!(Admin::Local.read_again().unwrap(), Reread::None);
}

#[test]
fn hashed_tokens_in_a_file_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let ((ann, of_ann), (bob, of_bob)) =
        (Token::random("ann", Role::Operate).unwrap(), Token::random("bob", Role::Operate).unwrap());
    write(&of_ann.line());
    let given = "0123456789abcdef";
    let admin = Admin::Tokens(Keyring::open(None, Some(given), Some(path.clone())).unwrap());
    let with = |token: &str| admitted(&admin, &[("authorization", &format!("Bearer {token}"))]);
    assert_eq!((with(&ann), with(&bob), with(given)), (Ok(()), Err(401), Ok(())));
    write("torn");
    let error = format!("{:#}", admin.read_again().unwrap_err());
    assert!(error.starts_with("tokens: ") && error.contains("line 1"), "{error}");
    assert_eq!(with(&ann), Ok(()), "those before stay");
    write(&of_bob.line());
    assert_eq!(admin.read_again().unwrap(), Reread::Renewed);
    assert_eq!((with(&ann), with(&bob), with(given)), (Err(401), Ok(()), Ok(())));
    assert_eq!(admin.read_again().unwrap(), Reread::Same);
}
