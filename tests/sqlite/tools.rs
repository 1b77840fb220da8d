//! The statement as a tool, called as the executor calls it.

use super::*;

const ORDERS: &str = "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, account TEXT, cents INTEGER); \
                      INSERT INTO orders VALUES (1, 'henderson', 15000), (2, 'henderson', 500), (3, 'ngo', 7)";

/// A set whose calls lean on this source.
fn set(source: &SqliteSource, calls: usize) -> Arc<SetContext> {
    let name = Arc::clone(Source::name(source));
    let sources = [(Arc::clone(&name), Arc::new(source.clone()) as Arc<dyn Source>)]
        .into_iter()
        .collect();
    let views = Views::new(
        Arc::new(sources),
        [(name, calls)].into_iter().collect(),
        TaskTracker::new(),
    );
    Arc::new(SetContext {
        views,
        ..SetContext::alone(timeline(), calls)
    })
}

fn request(
    set: &Arc<SetContext>,
    position: usize,
    arguments: Value,
    deadline: Option<Instant>,
) -> CallRequest {
    let Value::Object(arguments) = arguments else {
        panic!("an object")
    };
    let facts = Facts {
        class: Class::Read,
        because: None,
        dependency: "atlas".into(),
        source: Some("atlas".into()),
        outputs: Arc::from([]),
        preconditions: Arc::from([]),
        filters: Arc::from([]),
        timeout: None,
        is_final: false,
    };
    let call = ResolvedCall {
        position,
        id: "c".into(),
        tool: "list_orders".into(),
        arguments: Arc::new(arguments),
        after: Vec::new(),
        facts: Arc::new(facts),
        keys: Keys::NONE,
        partition_key: None,
        unchecked: false,
        fault: None,
    };
    CallRequest::new(Arc::new(call), Arc::clone(set), deadline)
}

async fn orders(source: &SqliteSource) -> SqliteTool {
    let text =
        "SELECT order_id, cents FROM orders WHERE account = :account AND cents >= :least ORDER BY order_id";
    let least = SqlParameter::new("least").default(0);
    let parameters = [SqlParameter::new("account"), least];
    let (spec, tool) = source.tool("list_orders", text, parameters).await.unwrap();
    assert!(matches!(spec.effect, Some(PerCall::Always(Effect::Read))));
    assert_eq!(spec.source.as_deref(), Some("atlas"));
    let PerCall::Always(fields) = &spec.output_fields else {
        panic!("fixed")
    };
    let fields: Vec<_> = fields.iter().map(|field| (&*field.name, field.origin)).collect();
    assert_eq!(
        fields,
        [
            ("order_id", FieldOrigin::Derived),
            ("cents", FieldOrigin::Derived)
        ]
    );
    let schema = spec.input_schema.unwrap();
    assert_eq!(
        schema["properties"],
        json!({ "account": {}, "least": { "default": 0 } })
    );
    tool
}

#[tokio::test]
async fn a_set_reads_one_view_and_a_write_ends_it() {
    let database = Database::wal(ORDERS).await;
    let source = database.source();
    let read = orders(&source).await;
    let set = set(&source, 4);
    let call = |position, arguments| read.clone().oneshot(request(&set, position, arguments, None));
    let henderson = json!({ "account": "henderson" });
    let (first, second) = tokio::join!(
        call(0, henderson.clone()),
        call(
            1,
            json!({ "account": "henderson", "least": 1_000, "other": null })
        )
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(
        first.value["rows"],
        json!([{ "order_id": 1, "cents": 15000 }, { "order_id": 2, "cents": 500 }])
    );
    assert_eq!(second.value["rows"], json!([{ "order_id": 1, "cents": 15000 }]));
    assert!(first.complete && first.view.is_some());
    assert_eq!(first.view, second.view);
    // As the executor does before a write.
    set.views.close().await;
    assert_eq!(set.views.unsound(), []);
    let (spec, write) = source
        .tool("raise", "UPDATE orders SET cents = cents + 1", [""; 0])
        .await
        .unwrap();
    assert!(matches!(spec.effect, Some(PerCall::Always(Effect::Write))));
    let written = write.oneshot(request(&set, 2, json!({}), None)).await.unwrap();
    assert_eq!(
        (
            written.value["rowsAffected"].as_u64(),
            written.view,
            written.stamp
        ),
        (Some(3), None, None)
    );
    let third = call(3, henderson).await.unwrap();
    assert_eq!(third.value["rows"][0]["cents"], 15001);
    assert_ne!(third.view, first.view);
    set.views.close().await;
}

#[tokio::test]
async fn a_cancelled_or_late_call_ends_at_once_and_leaves_the_view_usable() {
    let database = Database::wal(ORDERS).await;
    let source = database.source();
    let endless = source.undescribed_tool(ENDLESS, [""; 0]).unwrap();
    let read = orders(&source).await;
    let set = set(&source, 3);
    let late = Instant::now() + Duration::from_millis(30);
    let error = endless
        .clone()
        .oneshot(request(&set, 0, json!({}), Some(late)))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            ErrorCode::DeadlineExceeded,
            "list_orders was not done by the deadline."
        )
    );
    let cancelled = endless.oneshot(request(&set, 1, json!({}), None));
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        set.signals.cancel(1);
    };
    let (error, ()) = tokio::join!(cancelled, cancel);
    assert_eq!(error.unwrap_err().code(), ErrorCode::Cancelled);
    let answer = read
        .oneshot(request(&set, 2, json!({ "account": "ngo" }), None))
        .await
        .unwrap();
    assert_eq!(answer.value["rowCount"], 1);
    set.views.close().await;
    tokio::time::timeout(Duration::from_secs(2), source.shutdown())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_replaced_during_a_set_is_told_to_the_judge() {
    let database = Database::wal(ORDERS).await;
    let source = database.source();
    let read = orders(&source).await;
    let set = set(&source, 1);
    let answer = read
        .oneshot(request(&set, 0, json!({ "account": "ngo" }), None))
        .await
        .unwrap();
    let new = database.path.with_file_name("new.db");
    make(&new, SqliteJournalMode::Wal, ORDERS).await;
    std::fs::rename(&new, &database.path).unwrap();
    set.views.close().await;
    let unsound = set.views.unsound();
    assert_eq!(unsound.len(), 1);
    assert_eq!(Some(&unsound[0].0), answer.view.as_ref());
}

#[tokio::test]
async fn a_tool_tells_its_own_name() {
    let database = Database::wal(ORDERS).await;
    let source = database.source();
    let tool = source.undescribed_tool("SELECT * FROM missing", [""; 0]).unwrap();
    let set = set(&source, 1);
    let error = tool.oneshot(request(&set, 0, json!({}), None)).await.unwrap_err();
    assert_eq!(
        error.message(),
        "Could not complete list_orders: no such table: missing."
    );
    let error = source
        .tool("missing", "SELECT * FROM missing", [""; 0])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the database refused the statement: no such table: missing"
    );
    let away = SqliteSource::open(SqliteOptions::new(
        "away",
        database.path.with_file_name("away.db"),
    ))
    .unwrap();
    let error = away.tool("t", "SELECT 1", [""; 0]).await.unwrap_err();
    assert!(matches!(error, SqliteError::Unavailable(_)), "{error}");
    set.views.close().await;
}
