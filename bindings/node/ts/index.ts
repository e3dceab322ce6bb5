/** Exact rate limiting, with the same meaning in every store and language. */

export type { Admin } from "./admin";
export type { Key } from "./arguments";
export {
  Backoff,
  type BackoffOptions,
  type ResponseHeaders,
  type ServerWaitOptions,
  serverWaitMs,
} from "./backoff";
export { type ClientAddress, type ClientAddressOptions, ClientAddressRules } from "./client_address";
export type {
  AttributeHeaders,
  CandidateCounts,
  ConfigurationStatus,
  EntryValue,
  MatchedDecision,
  PolicyMatch,
  PublishOptions,
  RequestAttributes,
  RequestDecision,
} from "./configuration";
export type { Credentials, GiveCredentials } from "./credentials";
export type { Decision, QuotaUsage, QuotaVerdict, Usage } from "./decision";
export { PolylimitError } from "./errors";
export type { DegradedEvent, Finding } from "./events";
export {
  type DenialResponse,
  denialOf,
  type HeaderFields,
  type HeaderOptions,
  headerFields,
  type PolicyDecision,
} from "./headers";
export { Limiter } from "./limiter";
export { ManualClock } from "./manual_clock";
export type { MetricFamily, MetricHistogram, MetricSample, MetricsFormat } from "./metrics";
export type { AcquireOptions, Check, LimiterOptions, RequestOptions } from "./options";
export {
  type Policies,
  type Policy,
  type PolicyOptions,
  type PolicyView,
  Quota,
  type QuotaOptions,
  type Quotas,
} from "./policy";
export type {
  ConfigurationExplanation,
  EntryExplanation,
  KeyExplanation,
  KeyFilter,
  KeyPage,
  ListedKey,
  ListedQuota,
  ListOptions,
  NamedKey,
  PenaltyExplanation,
  QuotaExplanation,
  RequestExplanation,
  ResetPage,
  ScanBudget,
  ScanTopOptions,
  TopKey,
  TopKeys,
} from "./reports";
export type {
  CommitOptions,
  PolicyChoice,
  RequestReservation,
  Reservation,
  ReservationId,
  ReservationTerms,
  ReserveOptions,
} from "./reservation";
export type {
  Algorithm,
  Cause,
  Degradation,
  ErrorCode,
  ForwardingHeader,
  Outage,
  PolicyMode,
  QuotasSource,
  Source,
  StoreOptions,
} from "./tables";
