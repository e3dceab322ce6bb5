/** Exact rate limiting, with the same meaning in every store and language. */

export { type ClientAddress, type ClientAddressOptions, ClientAddressRules } from "./client_address";
export type { Decision, QuotaUsage, Usage } from "./decision";
export { PolylimitError } from "./failure";
export {
  type AcquireOptions,
  type Check,
  type Finding,
  type Key,
  Limiter,
  type LimiterOptions,
  type Policy,
  type PolicyView,
  type Quotas,
  type RequestOptions,
} from "./limiter";
export { ManualClock } from "./manual_clock";
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
