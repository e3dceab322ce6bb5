/** Exact rate limiting, with the same meaning in every store and language. */

export { type ClientAddress, type ClientAddressOptions, ClientAddressRules } from "./client_address";
export type { Decision, QuotaUsage, Usage } from "./decision";
export type { DegradedEvent, Finding } from "./degraded";
export { PolylimitError } from "./failure";
export type { Key } from "./key";
export {
  type AcquireOptions,
  type Check,
  Limiter,
  type LimiterOptions,
  type RequestOptions,
} from "./limiter";
export { ManualClock } from "./manual_clock";
export type { Policies, Policy, PolicyOptions, PolicyView, Quotas } from "./policy";
export { Quota, type QuotaOptions } from "./quota";
export type {
  Algorithm,
  Degradation,
  ErrorCode,
  ForwardingHeader,
  HeaderStyle,
  Outage,
  ResetForm,
  Source,
  StoreOptions,
} from "./tables";
