/** Policies as people write them, and as the addon reads them. */

import { types } from "node:util";

import { described, invalidArgument, known, refused, text } from "./argument";
import { Quota } from "./quota";
import type { Outage } from "./tables";

/** Quotas as text (`"100/minute; 1000/hour"`), as a `Quota`, or several of them. */
export type Quotas = string | Quota | readonly (string | Quota)[];

/** Quotas, with what their policy does besides counting. */
export interface PolicyOptions {
  readonly quotas: Quotas;
  /** What the policy answers while its store cannot be asked; the limiter's `outage` unless told otherwise. */
  readonly outage?: Outage;
  /**
   * Busy keys are leased: units are taken ahead from a store in Redis and spent in this process. `"auto"`, the most units
   * (`"100"`), or units and a time (`"100/500ms"`).
   */
  readonly lease?: string;
}

/** A policy: its quotas, or with what it does besides counting. */
export type Policy = Quotas | PolicyOptions;

/** The policies of a limiter by their names. */
export type Policies = Readonly<Record<string, Policy>> | ReadonlyMap<string, Policy>;

/** A policy as the limiter has it. */
export interface PolicyView {
  readonly name: string;
  readonly quotas: readonly Quota[];
}

type PolicyRow = { name: string; quotas: string; outage?: string; lease?: string };

export function policyRows(policies: Policies): PolicyRow[] {
  return entries(policies).map(([name, policy]) => {
    text("a policy's name", name, "text");
    if (!isOptions(policy)) return { name, quotas: quotasText(name, policy) };
    const { quotas, outage, lease } = known(`policy ${name}`, policy, ["quotas", "outage", "lease"]);
    if (outage !== undefined) text("outage", outage, "the name of what to answer");
    if (lease !== undefined) text("lease", lease, "auto, or units such as 100/500ms");
    return { name, quotas: quotasText(name, quotas), outage, lease };
  });
}

function entries(policies: Policies): (readonly [string, Policy])[] {
  if (types.isMap(policies)) return [...(policies as ReadonlyMap<string, Policy>)];
  if (typeof policies !== "object" || policies === null || Symbol.iterator in policies) {
    throw refused("policies", policies, "an object or a Map of quotas by their policy's name");
  }
  return Object.entries(policies);
}

function isOptions(policy: Policy): policy is PolicyOptions {
  return typeof policy === "object" && policy !== null && !Array.isArray(policy) && !(policy instanceof Quota);
}

export function quotasText(name: string, quotas: Quotas): string {
  const several = Array.isArray(quotas) ? (quotas as readonly unknown[]) : [quotas];
  const texts = several.map((quota) => {
    if (quota instanceof Quota) return quota.text;
    if (typeof quota === "string") return quota;
    throw invalidArgument(
      `policy ${name} is ${described(quota)}: allowed are text such as "100/minute", a Quota, or an array of them`,
    );
  });
  return texts.join("; ");
}

/** Of a policy's name and its quotas as text. */
export function policyView([name, ...quotas]: readonly string[]): PolicyView {
  return { name, quotas: quotas.map((quota) => Quota.parse(quota)) };
}
