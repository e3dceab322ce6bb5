//! The description of the interface as `OpenAPI`, made of the table of operations and of the types that handlers read.

use axum::body::Body;
use http::Response;
use http::header::HeaderValue;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref,
    RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::web::admin::{KeysQuery, MostQuery};
use crate::web::attributes::AttributesRequest;
use crate::web::documents::{PutQuery, RollbackRequest, VersionQuery};
use crate::web::forward::ForwardQuery;
use crate::web::lists::{BlockRequest, ItemRequest};
use crate::web::operation::{KeyRequest, ManyRequests, Operation};
use crate::web::refusal::with_body;

/// `GET /openapi.json`
pub(super) async fn document() -> Response<Body> {
    with_body(http::StatusCode::OK, HeaderValue::from_static("application/json"), openapi())
}

/// The interface over HTTP as an `OpenAPI` document, in JSON: that of `tools/server/openapi.json`.
pub fn openapi() -> String {
    let mut text = description().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// One path with one method.
struct Path {
    at: &'static str,
    method: HttpMethod,
    about: String,
    tag: &'static str,
    parameters: Vec<Parameter>,
    body: Option<RefOr<Schema>>,
    answer: &'static str,
}

impl Path {
    fn new(path: &'static str, method: HttpMethod, about: impl Into<String>, answer: &'static str) -> Self {
        Self {
            at: path,
            method,
            about: about.into(),
            tag: "data",
            parameters: Vec::new(),
            body: None,
            answer,
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
        Self { body: Some(schema), ..self }
    }
}

fn reference(name: std::borrow::Cow<'static, str>) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(name))
}

/// What callers ask.
fn data_paths() -> Vec<Path> {
    use HttpMethod::{Get, Post};
    let status =
        "With it, a denial has the status 429 or 503, the fields of its limits and a problem document.";
    let one_of = || {
        let one = Ref::from_schema_name(KeyRequest::name());
        let many = Ref::from_schema_name(ManyRequests::name());
        let either = utoipa::openapi::OneOfBuilder::new().item(one).item(many).build();
        RefOr::T(Schema::OneOf(either))
    };
    let mut paths: Vec<Path> = Operation::ALL
        .into_iter()
        .map(|operation| {
            let answer = if operation.decides() { "Decision" } else { "Usage" };
            let path = Path::new(operation.path(), Post, operation.about(), answer).body(one_of());
            if operation.decides() {
                path.parameter("status", ParameterIn::Query, Required::False, status)
            } else {
                path
            }
        })
        .collect();
    paths.extend(vec![
        Path::new(
            "/v1/decide",
            Post,
            "Decides about a request by the rules of the document.",
            "RequestDecision",
        )
        .body(reference(AttributesRequest::name()))
        .parameter("status", ParameterIn::Query, Required::False, status),
        Path::new(
            "/v1/forward/{policy}",
            Get,
            "Forward authentication: 200 or a denial. Any method.",
            "None",
        )
        .query::<ForwardQuery>()
        .parameter("policy", ParameterIn::Path, Required::True, "The name of a policy."),
        Path::new(
            "/v1/forward",
            Get,
            "Forward authentication by the rules of the document. Any method.",
            "None",
        )
        .query::<ForwardQuery>(),
        Path::new("/healthz", Get, "The process lives.", "Health"),
        Path::new("/readyz", Get, "200 while the server wants requests, otherwise 503.", "Health"),
    ]);
    paths
}

/// How operators look at keys, and at the server itself.
fn view_paths() -> Vec<Path> {
    use HttpMethod::{Get, Post};
    vec![
        Path::new("/metrics", Get, "Metrics in the text format of Prometheus.", "Text").admin(),
        Path::new("/v1/keys", Get, "A page of the keys that the store has, with what is used.", "KeyPage")
            .admin()
            .query::<KeysQuery>(),
        Path::new("/v1/top", Get, "The keys that this server denies and admits most often.", "TopKeys")
            .admin()
            .query::<MostQuery>(),
        Path::new("/v1/stats", Get, "Counters of the store's operations.", "Stats").admin(),
        Path::new("/v1/doctor", Get, "Findings about the store.", "Findings").admin(),
        Path::new(
            "/v1/processes",
            Get,
            "The processes that report to the store, and the keys that they deny most.",
            "Fleet",
        )
        .admin(),
        Path::new("/metrics/fleet", Get, "The same as metrics, for each process.", "Text").admin(),
        Path::new("/v1/session", Get, "The role of the caller, and what is in force.", "Session").admin(),
        Path::new("/v1/traffic", Get, "What each policy has decided in the last two hours.", "Traffic")
            .admin(),
        Path::new(
            "/v1/events",
            Get,
            "Server-sent events: snapshot each second; point, configuration and store when there is another.",
            "Events",
        )
        .admin(),
        Path::new("/v1/explain", Post, "Why a key would be admitted or denied.", "KeyExplanation")
            .admin()
            .body(reference(KeyRequest::name())),
        Path::new(
            "/v1/explain_request",
            Post,
            "Why a request would be admitted or denied.",
            "RequestExplanation",
        )
        .admin()
        .body(reference(AttributesRequest::name())),
        Path::new("/openapi.json", Get, "This document.", "OpenAPI").admin(),
    ]
}

/// How operators read and change limits.
fn limit_paths() -> Vec<Path> {
    use HttpMethod::{Get, Post, Put};
    let document = RefOr::T(Schema::Object(ObjectBuilder::new().build()));
    vec![
        Path::new("/v1/policies", Get, "The document of limits; its version is the ETag.", "Document")
            .admin()
            .query::<VersionQuery>(),
        Path::new(
            "/v1/policies",
            Put,
            "Publishes a document, TOML or JSON, in the store.",
            "ConfigurationStatus",
        )
        .admin()
        .query::<PutQuery>()
        .parameter(
            "If-Match",
            ParameterIn::Header,
            Required::True,
            "The ETag of the document that is replaced.",
        )
        .body(document.clone()),
        Path::new(
            "/v1/policies/validate",
            Post,
            "Whether a document, TOML or JSON, can be used.",
            "Validity",
        )
        .admin()
        .body(document.clone()),
        Path::new(
            "/v1/policies/diff",
            Post,
            "How a document differs from the one that is there.",
            "Difference",
        )
        .admin()
        .query::<VersionQuery>()
        .body(document),
        Path::new("/v1/rollback", Post, "Publishes an earlier document again.", "ConfigurationStatus")
            .admin()
            .body(reference(RollbackRequest::name())),
        Path::new("/v1/lists", Get, "The items of the deny and the allow list.", "Lists").admin(),
        Path::new("/v1/lists/add", Post, "Adds an item to a list, beside the document.", "Change")
            .admin()
            .body(reference(ItemRequest::name())),
        Path::new("/v1/lists/remove", Post, "Removes an item that was added to a list.", "Change")
            .admin()
            .body(reference(ItemRequest::name())),
        Path::new("/v1/block", Post, "Blocks a key of a policy for a time, or ends its block.", "Block")
            .admin()
            .body(reference(BlockRequest::name())),
        Path::new(
            "/v1/history",
            Get,
            "The last changes of documents and entries, the newest first.",
            "History",
        )
        .admin()
        .query::<MostQuery>(),
    ]
}

fn description() -> OpenApi {
    let mut items = PathsBuilder::new();
    for Path { at, method, about, tag, parameters, body, answer } in
        [data_paths(), limit_paths(), view_paths()].into_iter().flatten()
    {
        let object = Schema::Object(ObjectBuilder::new().build());
        let content = ContentBuilder::new().schema(Some(object.clone())).build();
        let answered = ResponseBuilder::new();
        let answered = match answer {
            "None" => answered.description("Nothing but the fields of the limits"),
            "Events" => answered
                .description("Server-sent events")
                .content("text/event-stream", ContentBuilder::new().build()),
            "Text" => answered.description("Text").content("text/plain", ContentBuilder::new().build()),
            answer => answered.description(answer).content("application/json", content),
        };
        let answered = answered.build();
        let problem = ContentBuilder::new().schema(Some(object)).build();
        let refused = ResponseBuilder::new()
            .description("A problem document (RFC 9457), with the code of the error")
            .content("application/problem+json", problem)
            .build();
        let mut operation = OperationBuilder::new()
            .description(Some(about))
            .tag(tag)
            .response("200", answered)
            .response("default", refused);
        for parameter in parameters {
            operation = operation.parameter(parameter);
        }
        if let Some(schema) = body {
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let body = RequestBodyBuilder::new()
                .content("application/json", content)
                .required(Some(Required::True))
                .build();
            operation = operation.request_body(Some(body));
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
