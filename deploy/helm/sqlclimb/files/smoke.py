"""`helm test`: every service is ready, one query is verified, one reply is generated. Exits 1 with a sentence."""

import os
import sys

import httpx

SERVICES = ("verifier", "author", "inference", "rollout", "trainer")
BUNDLE = {
    "name": "smoke",
    "schema_sql": "CREATE TABLE pets (name text, age integer);",
    "seed_sql": "INSERT INTO pets VALUES ('Ada', 3), ('Bo', 5);",
}
SANDBOX = "helm-smoke-test"


def call(client: httpx.Client, method: str, service: str, path: str, body: object = None) -> httpx.Response:
    """One call with the admin token. Ends the test when it fails."""
    url = os.environ[f"SQLCLIMB_{service.upper()}_URL"]
    try:
        response = client.request(method, url + path, json=body)
    except httpx.TransportError as error:  # a Service leads to ready Pods only
        sys.exit(f"{service}: {url} gave no answer ({type(error).__name__}): is one of its Pods ready?")
    if response.is_error:
        sys.exit(f"{service}: {method} {path} answered {response.status_code}: {response.text[:500]}")
    return response


def main() -> None:
    """The three checks."""
    headers = {"authorization": f"Bearer {os.environ['TOKEN']}"}
    with httpx.Client(headers=headers, timeout=120) as client:
        for service in SERVICES:
            call(client, "GET", service, "/readyz")
            print(f"{service}: ready")

        call(client, "POST", "verifier", "/v1/sandboxes", {"sandbox_id": SANDBOX, "run_id": "smoke", "bundle": BUNDLE})
        try:
            item = {"reply": "```sql\nSELECT count(*) FROM pets\n```", "gold": "SELECT count(name) FROM pets"}
            body = {"items": [item]}
            verdict = call(client, "POST", "verifier", f"/v1/sandboxes/{SANDBOX}/verify", body).json()["verdicts"][0]
        finally:
            call(client, "DELETE", "verifier", f"/v1/sandboxes/{SANDBOX}")
        if verdict["status"] != "match":
            sys.exit(f"verifier: a right query was judged {verdict['status']}: {verdict['reason']}")
        print("verifier: a right query matches")

        chat = {
            "model": os.environ["SERVED_NAME"],
            "messages": [{"role": "user", "content": "SELECT"}],
            "max_tokens": 8,
        }
        reply = call(client, "POST", "inference", "/v1/chat/completions", chat).json()
        print(f"inference: generated {reply['usage']['completion_tokens']} tokens")


if __name__ == "__main__":
    main()
