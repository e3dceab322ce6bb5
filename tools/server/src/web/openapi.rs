//! The description of the interface as `OpenAPI`, made of the table of operations and of the types that handlers read. The schemas of
//! answers are in `tools/server/answers.schema.json`, since the core, whose reports most of them are, knows nothing of `OpenAPI`; the
//! test `openapi` holds every answer of a server against them.

use axum::body::Body;
use http::Response;
use http::header::HeaderValue;
use serde_json::{Map, Value};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, InfoBuilder, OneOfBuilder, OpenApi, OpenApiBuilder, PathItem,
    PathsBuilder, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::web::admin::{KeysQuery, MostQuery};
use crate::web::attributes::AttributesRequest;
use crate::web::documents::{PutQuery, RollbackRequest, VersionQuery};
use crate::web::forward::ForwardQuery;
use crate::web::lists::{BlockRequest, ItemRequest};
use crate::web::operation::{KeyRequest, ManyRequests, Operation};
use crate::web::refusal::with_body;

/// The schemas of answers, by their names.
const ANSWERS: &str = include_str!("../../answers.schema.json");

/// `GET /openapi.json`
pub(super) async fn document() -> Response<Body> {
    with_body(http::StatusCode::OK, HeaderValue::from_static("application/json"), openapi())
}

/// The interface over HTTP as an `OpenAPI` document, in JSON: that of `tools/server/openapi.json`.
pub fn openapi() -> String {
    let mut described = serde_json::to_value(description()).unwrap_or_default();
    let answers: Map<String, Value> = serde_json::from_str(ANSWERS).unwrap_or_default();
    if let Some(schemas) = described["components"]["schemas"].as_object_mut() {
        schemas.extend(answers);
    }
    format!("{described:#}\n")
}

/// What a path answers with the status 200.
enum Answer {
    /// Nothing but fields.
    Empty,
    /// Text in the format of Prometheus.
    Metrics,
    /// Server-sent events.
    Events,
    /// An object that a specification of its own describes.
    Object,
    /// A schema among the answers.
    Json(&'static str),
    /// One answer, or the answers to several requests.
    OneOrMany(&'static str, &'static str),
}

/// One path with one method.
struct Path {
    at: &'static str,
    method: HttpMethod,
    about: String,
    tag: &'static str,
    parameters: Vec<Parameter>,
    /// The content types of the body with their schemas.
    body: Vec<(&'static str, RefOr<Schema>)>,
    answer: Answer,
    /// Whether a denial has a status of its own, and a problem document.
    denies: bool,
}

impl Path {
    fn new(path: &'static str, method: HttpMethod, about: impl Into<String>, answer: Answer) -> Self {
        Self {
            at: path,
            method,
            about: about.into(),
            tag: "data",
            parameters: Vec::new(),
            body: Vec::new(),
            answer,
            denies: false,
        }
    }

    fn admin(self) -> Self {
        Self { tag: "admin", ..self }
    }

    fn query<T: IntoParams>(self) -> Self {
        Self { parameters: T::into_params(|| Some(ParameterIn::Query)), ..self }
    }

    fn parameter(mut self, name: &str, place: ParameterIn, required: Required, about: &str) -> Self {
        let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).build();
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(place)
            .required(required)
            .description(Some(about))
            .schema(Some(Schema::Object(text)))
            .build();
        self.parameters.push(parameter);
        self
    }

    fn body(self, schema: RefOr<Schema>) -> Self {
        Self { body: vec![(JSON, schema)], ..self }
    }

    /// A document of limits, as JSON or as TOML.
    fn document(self) -> Self {
        let object = |kind| Schema::Object(ObjectBuilder::new().schema_type(SchemaType::Type(kind)).build());
        let body = [(JSON, object(Type::Object)), ("application/toml", object(Type::String))]
            .map(|(name, schema)| (name, RefOr::T(schema)));
        Self { body: body.into(), ..self }
    }

    fn denies(self) -> Self {
        Self { denies: true, ..self }
    }

    /// Takes the parameter `status`, with which a denial has a status.
    fn status(self) -> Self {
        let about =
            "With it, a denial has the status 429 or 503, the fields of its limits and a problem document.";
        self.parameter("status", ParameterIn::Query, Required::False, about).denies()
    }
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

fn reference(name: std::borrow::Cow<'static, str>) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

/// What callers ask.
fn data_paths() -> Vec<Path> {
    use HttpMethod::{Get, Post};
    let one_of = || {
        let one = Ref::from_schema_name(KeyRequest::name());
        let many = Ref::from_schema_name(ManyRequests::name());
        let either = OneOfBuilder::new().item(one).item(many).build();
        RefOr::T(Schema::OneOf(either))
    };
    let mut paths: Vec<Path> = Operation::ALL
        .into_iter()
        .map(|operation| {
            let answer = if operation.decides() {
                Answer::OneOrMany("Decision", "Decisions")
            } else {
                Answer::OneOrMany("Usage", "Usages")
            };
            let path = Path::new(operation.path(), Post, operation.about(), answer).body(one_of());
            if operation.decides() { path.status() } else { path }
        })
        .collect();
    paths.extend(vec![
        Path::new(
            "/v1/decide",
            Post,
            "Decides about a request by the rules of the document.",
            Answer::Json("RequestDecision"),
        )
        .body(reference(AttributesRequest::name()))
        .status(),
        Path::new(
            "/v1/forward/{policy}",
            Get,
            "Forward authentication: 200 or a denial. Any method.",
            Answer::Empty,
        )
        .query::<ForwardQuery>()
        .denies()
        .parameter("policy", ParameterIn::Path, Required::True, "The name of a policy."),
        Path::new(
            "/v1/forward",
            Get,
            "Forward authentication by the rules of the document. Any method.",
            Answer::Empty,
        )
        .query::<ForwardQuery>()
        .denies(),
        Path::new("/healthz", Get, "The process lives.", Answer::Json("Alive")),
        Path::new(
            "/readyz",
            Get,
            "200 while the server wants requests, otherwise 503.",
            Answer::Json("Ready"),
        ),
    ]);
    paths
}

/// How operators look at keys, and at the server itself.
fn view_paths() -> Vec<Path> {
    use HttpMethod::{Get, Post};
    vec![
        Path::new("/metrics", Get, "Metrics in the text format of Prometheus.", Answer::Metrics).admin(),
        Path::new("/v1/keys", Get, "A page of the keys that the store has, with what is used.", Answer::Json("KeyPage"))
            .admin()
            .query::<KeysQuery>(),
        Path::new("/v1/top", Get, "The keys that this server denies and admits most often.", Answer::Json("TopKeys"))
            .admin()
            .query::<MostQuery>(),
        Path::new("/v1/stats", Get, "Counters of the store's operations.", Answer::Json("Stats")).admin(),
        Path::new("/v1/doctor", Get, "Findings about the store.", Answer::Json("Findings")).admin(),
        Path::new(
            "/v1/processes",
            Get,
            "The processes that report to the store, and the keys that they deny most.",
            Answer::Json("Fleet"),
        )
        .admin(),
        Path::new("/metrics/fleet", Get, "The same as metrics, for each process.", Answer::Metrics).admin(),
        Path::new("/v1/session", Get, "The role of the caller, and what is active.", Answer::Json("Session")).admin(),
        Path::new("/v1/traffic", Get, "What each policy has decided in the last two hours.", Answer::Json("Traffic"))
            .admin(),
        Path::new(
            "/v1/events",
            Get,
            "Server-sent events: snapshot each second; point, configuration and store when there is another. Their data are Snapshot, Point, ConfigurationStatus and StoreState in JSON.",
            Answer::Events,
        )
        .admin(),
        Path::new("/v1/explain", Post, "Why a key would be admitted or denied.", Answer::Json("KeyExplanation"))
            .admin()
            .body(reference(KeyRequest::name())),
        Path::new(
            "/v1/explain_request",
            Post,
            "Why a request would be admitted or denied.",
            Answer::Json("RequestExplanation"),
        )
        .admin()
        .body(reference(AttributesRequest::name())),
        Path::new("/openapi.json", Get, "This document.", Answer::Object).admin(),
    ]
}

/// How operators read and change limits.
fn limit_paths() -> Vec<Path> {
    use HttpMethod::{Get, Post, Put};
    vec![
        Path::new(
            "/v1/policies",
            Get,
            "The document of limits; its version is the ETag.",
            Answer::Json("Document"),
        )
        .admin()
        .query::<VersionQuery>(),
        Path::new(
            "/v1/policies",
            Put,
            "Publishes a document, TOML or JSON, in the store.",
            Answer::Json("ConfigurationStatus"),
        )
        .admin()
        .query::<PutQuery>()
        .parameter(
            "If-Match",
            ParameterIn::Header,
            Required::True,
            "The ETag of the document that is replaced.",
        )
        .document(),
        Path::new(
            "/v1/policies/validate",
            Post,
            "Whether a document, TOML or JSON, can be used.",
            Answer::Json("Validity"),
        )
        .admin()
        .document(),
        Path::new(
            "/v1/policies/diff",
            Post,
            "How a document differs from the one that is there.",
            Answer::Json("Difference"),
        )
        .admin()
        .query::<VersionQuery>()
        .document(),
        Path::new(
            "/v1/rollback",
            Post,
            "Publishes an earlier document again.",
            Answer::Json("ConfigurationStatus"),
        )
        .admin()
        .body(reference(RollbackRequest::name())),
        Path::new("/v1/lists", Get, "The items of the deny and the allow list.", Answer::Json("Lists"))
            .admin(),
        Path::new(
            "/v1/lists/add",
            Post,
            "Adds an item to a list, in addition to the document.",
            Answer::Json("Change"),
        )
        .admin()
        .body(reference(ItemRequest::name())),
        Path::new(
            "/v1/lists/remove",
            Post,
            "Removes an item that was added to a list.",
            Answer::Json("Change"),
        )
        .admin()
        .body(reference(ItemRequest::name())),
        Path::new(
            "/v1/block",
            Post,
            "Blocks a key of a policy for a time, or ends its block.",
            Answer::Json("Block"),
        )
        .admin()
        .body(reference(BlockRequest::name())),
        Path::new(
            "/v1/history",
            Get,
            "The last changes of documents and entries, the newest first.",
            Answer::Json("History"),
        )
        .admin()
        .query::<MostQuery>(),
    ]
}

/// What a path answers, and how it refuses.
fn answer_content(answer: &Answer) -> (&'static str, Option<(&'static str, Content)>) {
    let refer = |name: &'static str| reference(name.into());
    let content = |schema| ContentBuilder::new().schema(Some(schema)).build();
    match *answer {
        Answer::Empty => ("Nothing but the fields of the limits", None),
        Answer::Metrics => ("Metrics", Some(("text/plain", ContentBuilder::new().build()))),
        Answer::Events => ("Events", Some(("text/event-stream", ContentBuilder::new().build()))),
        Answer::Object => {
            ("A document", Some((JSON, content(RefOr::T(Schema::Object(ObjectBuilder::new().build()))))))
        }
        Answer::Json(name) => (name, Some((JSON, content(refer(name))))),
        Answer::OneOrMany(one, many) => {
            let either = OneOfBuilder::new().item(refer(one)).item(refer(many)).build();
            (one, Some((JSON, content(RefOr::T(Schema::OneOf(either))))))
        }
    }
}

fn description() -> OpenApi {
    let mut items = PathsBuilder::new();
    for Path { at, method, about, tag, parameters, body, answer, denies } in
        [data_paths(), limit_paths(), view_paths()].into_iter().flatten()
    {
        let (description, content) = answer_content(&answer);
        let answered = ResponseBuilder::new().description(description);
        let answered = match content {
            Some((name, content)) => answered.content(name, content),
            None => answered,
        };
        let problem = reference("Problem".into());
        let problem = if denies {
            let denial = reference("Denial".into());
            RefOr::T(Schema::OneOf(OneOfBuilder::new().item(denial).item(problem).build()))
        } else {
            problem
        };
        let refused = ResponseBuilder::new()
            .description(if denies { "A denial or a refusal" } else { "A refusal" })
            .content(PROBLEM, ContentBuilder::new().schema(Some(problem)).build());
        let mut operation = OperationBuilder::new()
            .description(Some(about))
            .tag(tag)
            .response("200", answered.build())
            .response("default", refused.build());
        for parameter in parameters {
            operation = operation.parameter(parameter);
        }
        if !body.is_empty() {
            let contents = body.into_iter();
            let described = contents.fold(RequestBodyBuilder::new(), |described, (name, schema)| {
                described.content(name, ContentBuilder::new().schema(Some(schema)).build())
            });
            operation = operation.request_body(Some(described.required(Some(Required::True)).build()));
        }
        items = items.path(at, PathItem::new(method, operation.build()));
    }
    let components = ComponentsBuilder::new()
        .schema(KeyRequest::name(), KeyRequest::schema())
        .schema(ManyRequests::name(), ManyRequests::schema())
        .schema(AttributesRequest::name(), AttributesRequest::schema())
        .schema(RollbackRequest::name(), RollbackRequest::schema())
        .schema(ItemRequest::name(), ItemRequest::schema())
        .schema(BlockRequest::name(), BlockRequest::schema())
        .build();
    let info = InfoBuilder::new()
        .title("polylimit")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Rate limits over HTTP. Times are in microseconds."))
        .build();
    OpenApiBuilder::new().info(info).paths(items.build()).components(Some(components)).build()
}
