//! The description of the API says what the service does: each of its examples is run.

use serde_json::{Map, Value, json};

use crate::gateway::Gateway;
use crate::wire::{ask, request, send};

/// What a reference points to.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        None => schema,
        Some(reference) => {
            let path = reference.strip_prefix('#').unwrap();
            document
                .pointer(path)
                .unwrap_or_else(|| panic!("{reference} points nowhere"))
        }
    }
}

/// The example of a body: the schema's own, and those of its parts.
fn example(document: &Value, schema: &Value) -> Value {
    let schema = resolved(document, schema);
    if let Some(example) = schema.get("example").or_else(|| schema.pointer("/examples/0")) {
        return example.clone();
    }
    let mut body = Map::new();
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(example) = part.get("example").or_else(|| part.pointer("/examples/0")) {
            body.insert(name.clone(), example.clone());
        }
    }
    Value::Object(body)
}

/// Whether a value has what its schema says that it must have.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolved(document, schema);
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        if value.get(name).is_none() {
            return Err(format!("{name} is required, and not in {value}"));
        }
    }
    let known = schema["properties"].as_object();
    for (name, part) in value.as_object().into_iter().flatten() {
        let Some(described) = known.and_then(|known| known.get(name)) else {
            return match known {
                Some(_) => Err(format!("{name} is not described")),
                None => Ok(()),
            };
        };
        for one in part.as_array().into_iter().flatten() {
            fits(document, &described["items"], one)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_the_description_is_true() {
    let gateway = Gateway::with("memory:", |config| {
        config.namespace = distlock::Namespace::new("openapi").unwrap();
    })
    .await;
    let document = gateway.get("/v1/openapi.json").await.ok();
    let mut run = Vec::new();
    for (template, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let mut path = template.clone();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                if parameter["in"] == "path" {
                    let value = parameter["example"]
                        .as_str()
                        .expect("a path's part has an example");
                    let name = format!("{{{}}}", parameter["name"].as_str().unwrap());
                    path = path.replace(&name, &value.replace(':', "%3A"));
                }
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let mut body = example(&document, schema);
            // A handle is no constant: it is of the lock that the example is about, taken now.
            let mut held = None;
            let properties = &resolved(&document, schema)["properties"];
            if !properties["handle"].is_null() || id == "renew_all" {
                let lease = gateway
                    .post("/v1/locks/order%3A42/acquire", json!({"wait": "5s"}))
                    .await
                    .ok();
                match id {
                    "renew_all" => body["leases"] = json!([{"handle": lease["handle"]}]),
                    _ => body["handle"] = lease["handle"].clone(),
                }
                held = Some(lease);
            }
            let success = &operation["responses"]["200"]["content"];
            if let Some(schema) = success.pointer("/application~1json/schema") {
                let text = if body.as_object().is_some_and(|b| b.is_empty()) {
                    String::new()
                } else {
                    body.to_string()
                };
                let reply = ask(gateway.at, &method.to_uppercase(), &path, &[], text.as_bytes()).await;
                let answer = reply.ok();
                fits(&document, schema, &answer).unwrap_or_else(|why| panic!("{id}: {why}"));
                for lease in answer["leases"].as_array().into_iter().flatten().chain([&answer]) {
                    if let (Some(handle), Some(key)) = (lease["handle"].as_str(), lease["key"].as_str()) {
                        let path = format!("/v1/locks/{}/release", key.replace(':', "%3A"));
                        gateway.post(&path, json!({"handle": handle})).await.ok();
                        held = None;
                    }
                }
            } else {
                assert!(success["text/event-stream"].is_object(), "{id} has no success");
                let mut stream = tokio::net::TcpStream::connect(gateway.at).await.unwrap();
                let bytes = request("GET", &path, &[], b"");
                tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes)
                    .await
                    .unwrap();
                let mut head = [0; 12];
                tokio::io::AsyncReadExt::read_exact(&mut stream, &mut head)
                    .await
                    .unwrap();
                assert_eq!(&head, b"HTTP/1.1 200", "{id}");
            }
            if let Some(lease) = held
                && id != "release"
            {
                gateway
                    .post("/v1/locks/order%3A42/release", json!({"handle": lease["handle"]}))
                    .await
                    .ok();
            }
            run.push(id.to_owned());
        }
    }
    run.sort();
    assert_eq!(run.len(), 14, "{run:?}");
    // What it says of failures: the answer is one of those that are described.
    let busy = &document["paths"]["/v1/locks/{key}/acquire"]["post"]["responses"]["409"]["content"];
    let schema = &busy["application/problem+json"]["schema"];
    gateway.post("/v1/locks/described/acquire", json!({})).await.ok();
    let problem = gateway
        .post("/v1/locks/described/acquire", json!({}))
        .await
        .problem(409, "busy");
    fits(&document, schema, &problem).unwrap();
    let raw = send(gateway.at, b"nonsense\r\n\r\n").await;
    assert!(String::from_utf8_lossy(&raw).starts_with("HTTP/1.1 400"));
    gateway.stop().await;
}
