"""Where the configuration comes from, and when it is read again."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from scheduler.cluster import auth
from scheduler.cluster.auth import AuthError, Credentials, Identity
from scheduler.cluster.client import ApiClient, Unreachable


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://api:1/"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
            {"name": "nobody", "context": {"cluster": "c", "user": "none"}},
        ],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def touch(path: Path) -> None:
    later = time.time() + 5
    os.utime(path, (later, later))


def plugin(path: Path, body: str) -> dict[str, Any]:
    """An exec plugin that is a Python script; `body` prints the credential. It counts its runs in a file beside it."""
    path.write_text(f"open({str(path) + '.runs'!r}, 'a').write('x')\nimport json, sys\n{body}\n")
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(path)],
            "interactiveMode": "Never",
        }
    }


def runs(path: Path) -> int:
    return len(Path(f"{path}.runs").read_text())


def credential(**status: str) -> str:
    document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print(json.dumps({document!r}))"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two self-signed certificates, for localhost and for other.example, with their keys."""
    folder = tmp_path_factory.mktemp("tls")
    for name, host in (("one", "localhost"), ("two", "other.example")):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2", "-subj", f"/CN={host}"]
        command += ["-addext", f"subjectAltName=DNS:{host}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


async def test_a_token_and_the_namespace_come_from_the_kubeconfig(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t1"})
    credentials = await Credentials.load(str(path))
    assert credentials.authorization == "Bearer t1"
    assert credentials.server == "http://api:1"
    assert credentials.tls is None
    assert credentials.identity.namespace == "ns"
    assert (await Credentials.load(str(path), "nobody")).authorization == ""


async def test_the_environment_names_the_kubeconfig_and_several_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kubeconfig(tmp_path / "first", {"token": "t1"})
    document = yaml.safe_load(first.read_text())
    users = document.pop("users")
    first.write_text(yaml.safe_dump(document))
    (tmp_path / "second").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'second'}")
    assert (await Credentials.load()).authorization == "Bearer t1"


async def test_user_and_password_are_sent_as_basic(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"username": "me", "password": "secret"})
    credentials = await Credentials.load(str(path))
    assert credentials.authorization == "Basic " + base64.b64encode(b"me:secret").decode()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), ("{", "kubeconfig"), ("contexts: 7", "kubeconfig"), ("", "empty")],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AuthError, match=message) as caught:
        await Credentials.load(str(path))
    assert str(path) in str(caught.value)


async def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {})
    with pytest.raises(AuthError, match="elsewhere"):
        await Credentials.load(str(path), "elsewhere")


async def test_a_rotated_token_file_is_read_again_and_nothing_else_is(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t1")
    credentials = await Credentials.load(str(kubeconfig(tmp_path / "config", {"tokenFile": "token"})))
    assert credentials.authorization == "Bearer t1"
    assert not await credentials.refresh()
    token.write_text("t2")
    touch(token)
    assert await credentials.refresh()
    assert credentials.authorization == "Bearer t2"


async def test_a_failed_reload_keeps_the_credentials_and_is_counted(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t1"})
    credentials = await Credentials.load(str(path))
    path.write_text("{")
    touch(path)
    assert not await credentials.refresh()
    assert (credentials.authorization, credentials.failures) == ("Bearer t1", 1)
    kubeconfig(path, {"token": "t2"})
    assert await credentials.refresh()
    assert credentials.authorization == "Bearer t2"


async def test_an_exec_plugin_runs_once_until_its_token_is_about_to_expire(tmp_path: Path) -> None:
    script = tmp_path / "plugin.py"
    user = plugin(script, credential(token="t1", expirationTimestamp="2030-01-01T00:00:00Z"))
    credentials = await Credentials.load(str(kubeconfig(tmp_path / "config", user)))
    assert credentials.authorization == "Bearer t1"
    assert not await credentials.refresh()
    assert runs(script) == 1
    credentials._clock = lambda: 1893456000.0 - 200
    assert await credentials.refresh()
    assert runs(script) == 2


def test_a_short_life_is_renewed_in_its_last_fifth() -> None:
    identity = Identity(server="http://x", expires=1100.0, loaded=1000.0)
    assert not identity.due(1079.0)
    assert identity.due(1080.0)
    assert not Identity(server="http://x").due(1e12)


async def test_401_makes_concurrent_callers_run_the_plugin_once(tmp_path: Path) -> None:
    script = tmp_path / "plugin.py"
    user = plugin(script, credential(token="t1"))
    credentials = await Credentials.load(str(kubeconfig(tmp_path / "config", user)))
    done = await asyncio.gather(*(credentials.refresh(force=True) for _ in range(20)))
    assert all(done)
    assert runs(script) == 2
    assert not await credentials.refresh(force=True)  # too soon after the last
    assert runs(script) == 2


@pytest.mark.parametrize("body", ["sys.exit('no login')", "print('{}')", "print('nonsense')"])
async def test_an_exec_plugin_that_gives_nothing_is_an_error_not_an_anonymous_client(tmp_path: Path, body: str) -> None:
    path = kubeconfig(tmp_path / "config", plugin(tmp_path / "plugin.py", body))
    with pytest.raises(AuthError, match="exec plugin of user 'u'"):
        await Credentials.load(str(path))


async def test_a_plugin_that_hangs_does_not_stop_us_and_does_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "plugin.py"
    flag = tmp_path / "hang"
    wait = f"import os, time\nwhile os.path.exists({str(flag)!r}): time.sleep(0.01)\n"
    path = kubeconfig(tmp_path / "config", plugin(script, wait + credential(token="t1")))
    credentials = await Credentials.load(str(path))
    monkeypatch.setattr(auth, "RELOAD_TIMEOUT", 0.1)
    flag.write_text("")
    assert not await credentials.refresh(force=True)
    assert not await credentials.refresh(force=True)
    flag.unlink()
    monkeypatch.setattr(auth, "RELOAD_TIMEOUT", 30.0)
    assert await credentials.refresh(force=True)
    assert runs(script) == 2


async def test_a_plugin_may_give_certificates(tmp_path: Path, certificates: Path) -> None:
    cert, key = (certificates / "one.crt").read_text(), (certificates / "one.key").read_text()
    user = plugin(
        tmp_path / "plugin.py",
        credential(clientCertificateData=cert, clientKeyData=key, expirationTimestamp="2030-01-01T00:00:00Z"),
    )
    cluster = {"server": "https://localhost:1", "certificate-authority": str(certificates / "one.crt")}
    credentials = await Credentials.load(str(kubeconfig(tmp_path / "config", user, cluster)))
    assert credentials.authorization == ""
    assert Path(credentials.identity.cert_file).read_text() == cert
    assert credentials.identity.due(1893456000.0 - 200)


async def test_a_service_account_is_used_in_a_pod_and_its_rotated_token_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificates: Path
) -> None:
    (tmp_path / "token").write_text("t1")
    (tmp_path / "ca.crt").write_text((certificates / "one.crt").read_text())
    (tmp_path / "namespace").write_text("muster-system\n")
    monkeypatch.setattr(auth, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    credentials = await Credentials.load()
    assert credentials.server == "https://[fd00::1]:443"
    assert credentials.authorization == "Bearer t1"
    assert credentials.identity.namespace == "muster-system"
    (tmp_path / "token").write_text("t2")
    touch(tmp_path / "token")
    assert await credentials.refresh()
    assert credentials.authorization == "Bearer t2"


async def test_a_proxy_is_used_except_for_the_hosts_that_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"server": "https://api.internal:6443"}
    path = str(kubeconfig(tmp_path / "config", {}, cluster))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert (await Credentials.load(path)).identity.proxy == "http://proxy:3128"
    monkeypatch.setenv("NO_PROXY", "localhost,.internal")
    assert (await Credentials.load(path)).identity.proxy == ""
    other = kubeconfig(tmp_path / "other", {}, {"server": "https://api:1", "proxy-url": "socks5://proxy:1"})
    with pytest.raises(AuthError, match="socks5://proxy:1"):
        await Credentials.load(str(other))


async def test_tls_checks_the_server_and_notices_a_new_authority(tmp_path: Path, certificates: Path) -> None:
    """The server is "other.example"; we call it localhost, trust the wrong authority first, and the right one then."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "two.crt", certificates / "two.key")

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    app = web.Application()
    app.router.add_get("/x", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    ca = tmp_path / "ca.crt"
    ca.write_text((certificates / "one.crt").read_text())
    cluster = {"server": f"https://localhost:{port}", "certificate-authority": "ca.crt"}
    path = kubeconfig(tmp_path / "config", {}, cluster)
    try:
        async with ApiClient(await Credentials.load(str(path))) as client:
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await client.request("POST", "/x", body=b"{}")
            ca.write_text((certificates / "two.crt").read_text())
            touch(ca)
            assert await client.credentials.refresh()
            with pytest.raises(Unreachable, match=r"Hostname mismatch|hostname"):
                await client.get_json("/x")
            kubeconfig(path, {}, cluster | {"tls-server-name": "other.example"})
            touch(path)
            assert await client.credentials.refresh()
            assert await client.get_json("/x") == {"ok": True}
        insecure = {"server": f"https://localhost:{port}", "insecure-skip-tls-verify": True}
        kubeconfig(path, {}, insecure)
        async with ApiClient.connect(str(path)) as client:
            assert await client.get_json("/x") == {"ok": True}
    finally:
        await runner.cleanup()


async def test_a_broken_certificate_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nonsense")
    cluster = {"server": "https://api:1", "certificate-authority": "ca.crt"}
    with pytest.raises(AuthError, match=r"ca\.crt"):
        await Credentials.load(str(kubeconfig(tmp_path / "config", {}, cluster)))
