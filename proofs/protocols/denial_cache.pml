/*
 * The denial cache of one process, and the messages about refunds by another process that it may miss.
 *
 * bounds: one key, which the store admits again after two ticks; a denial is cached for at most one
 * bounds: two checks that reach the store, and any number that the cache answers; one refund of this process, and one of another
 * bounds: the refund of this process may time out, and then arrives within the tick of its start or never
 * bounds: one lost connection of the subscriber
 * bounds: messages are delivered in their order after any delay; the channels in use are looked at any number of times
 *
 * invariant own_refund_ends_denials: Once the call of this process's refund has ended, no denial that preceded the refund is served.
 * invariant message_ends_denials: Once the message about another process's refund is handled, no denial that preceded it is served.
 * invariant subscription_ends_denials: Once a channel is subscribed, no denial is served that preceded a refund before the subscription.
 * invariant denials_age: No denial is served for `denial_cache_max` after its request was made, or longer.
 * invariant store_would_deny: No denial is served when the store, by the time that has passed, admits the key.
 * invariant channel_is_kept: The subscriber leaves no channel that a cached denial needs.
 *
 * defect LEARNS_ALWAYS refutes own_refund_ends_denials: A denial is cached although something was given back since its request was made.
 * defect IS_SURE refutes own_refund_ends_denials: After a refund without an answer, denials are cached at once.
 * defect IGNORES_DEADLINE refutes own_refund_ends_denials: The store applies a refund after its deadline.
 * defect KEEPS_VERSION refutes message_ends_denials: A message removes the denial and does not change the version.
 * defect KEEPS_AT_SUBSCRIPTION refutes subscription_ends_denials: A subscription drops nothing from the cache.
 * defect NEVER_TOO_OLD refutes denials_age: The age of a denial is not checked.
 * defect COUNTS_FROM_REPLY refutes store_would_deny: The cache's time runs from the reply.
 * defect LOOKS_FIRST refutes channel_is_kept: The caches are read before the wanted channels are taken.
 */

/* Only the invariants that the macro of their name selects are checked. */
#define INVARIANT(name, condition) assert(!name || (condition))

#define LAST_TICK 2
#define ADMITS_AT 2
#define LONGEST 1
#define ARRIVES_WITHIN 0

byte now;

/* The store: how often something was given back, and whether it sends messages. */
byte given_back;
bool sends;

/* The cache: the version, the cached denial, and until when a refund may arrive. */
byte changes, asked_at, denied_at, unsure_until;
bool is_cached, is_unsure;

/* Up to which refund the cached denial and this process know. */
byte denial_of, heard_own, heard_message, heard_subscription;

/* A message is the number of a refund; above 10 it confirms a subscription after that number of refunds. */
chan messages = [3] of { byte };
bool is_wanted, is_heard, is_asked, is_subscribed;
bool is_about_to_listen;
bool connections_lost;

/* core/store-redis/src/script/lua/transition/decide.lua: publish_invalidation */
inline publish_invalidation() {
    given_back++;
    if
    :: sends -> messages!given_back
    :: else
    fi
}

/* core/store-redis/src/denial_cache.rs: forget */
inline forget() {
    changes++;
    is_cached = false;
    asked_at = 0;
    denied_at = 0;
    denial_of = 0
}

active proctype checks() {
    byte seen_changes, at, time, epoch, number;
    bool may_learn;
    do
    :: number < 2 && now < ADMITS_AT ->
        /* core/store-redis/src/denial_cache.rs: read_version */
read_version:
        atomic {
            number++;
            seen_changes = changes;
            at = now;
            may_learn = !is_unsure || unsure_until < now
        }
        /* core/store-redis/src/dispatch.rs: submit */
submit:
        atomic {
            if
            :: now < ADMITS_AT -> time = now; epoch = given_back
            :: now >= ADMITS_AT || given_back > 0 -> may_learn = false /* admitted */
            fi
        }
        /* core/store-redis/src/denial_cache.rs: learn */
learn:
        atomic {
            if
#ifdef DEFECT_LEARNS_ALWAYS
            :: may_learn ->
#else
            :: may_learn && seen_changes == changes ->
#endif
                is_cached = true;
                denied_at = time;
                denial_of = epoch;
#ifdef DEFECT_COUNTS_FROM_REPLY
                asked_at = now;
#else
                asked_at = at;
#endif
                is_about_to_listen = true
            :: else
            fi;
            seen_changes = 0;
            at = 0;
            time = 0;
            epoch = 0;
            may_learn = false
        }
        /* core/store-redis/src/dispatch.rs: listen */
listen:
        atomic {
            is_wanted = is_wanted || is_about_to_listen;
            is_about_to_listen = false
        }
    :: number == 2 || now >= ADMITS_AT -> break
    od
}

active proctype cached_checks() {
end:
    do
    :: atomic {
        is_cached ->
        /* core/store-redis/src/denial_cache.rs: look_up */
look_up:
        if
#ifndef DEFECT_NEVER_TOO_OLD
        :: now - asked_at >= LONGEST -> is_cached = false
#endif
        :: denied_at + (now - asked_at) >= ADMITS_AT -> is_cached = false
        :: else ->
            INVARIANT(own_refund_ends_denials, denial_of >= heard_own);
            INVARIANT(message_ends_denials, denial_of >= heard_message);
            INVARIANT(subscription_ends_denials, denial_of >= heard_subscription);
            INVARIANT(denials_age, now - asked_at < LONGEST);
            INVARIANT(store_would_deny, now < ADMITS_AT)
        fi;
        if
        :: !is_cached -> asked_at = 0; denied_at = 0; denial_of = 0
        :: else
        fi
       }
    od
}

active proctype own_refund() {
    byte arrives_by, epoch;
    bool has_ended;
    /* core/store-redis/src/lease/refund.rs: refund */
refund:
    arrives_by = now + ARRIVES_WITHIN;
    do
    :: atomic {
#ifdef DEFECT_IGNORES_DEADLINE
        epoch == 0 ->
#else
        epoch == 0 && now <= arrives_by ->
#endif
        publish_invalidation();
        epoch = given_back;
        heard_own = (has_ended -> epoch : heard_own)
       }
    :: atomic {
        epoch > 0 && !has_ended ->
        heard_own = epoch;
        forget();
        break
       }
    :: atomic {
        /* The call ends without an answer, whether the refund was applied or not. */
        !has_ended ->
        has_ended = true;
        heard_own = epoch;
        forget();
#ifndef DEFECT_IS_SURE
        is_unsure = true;
        unsure_until = now + ARRIVES_WITHIN
#endif
       }
    :: has_ended -> break
    od
}

active proctype another_process() {
    if
    :: atomic { true -> publish_invalidation() }
    :: now == LAST_TICK
    fi
}

active proctype subscriber() {
    byte message;
    bool in_use;
end:
    do
    :: atomic {
        (is_wanted || is_heard) && !is_asked ->
        /* core/store-redis/src/routing/invalidation.rs: follow */
follow:
        is_heard = true;
        is_asked = true;
        sends = true;
        messages!(10 + given_back)
       }
    :: atomic {
        messages?message ->
        /* core/store-redis/src/routing/invalidation.rs: read */
read:
        if
        :: message >= 10 ->
            /* core/store-redis/src/routing/invalidation.rs: subscribed */
subscribed:
            is_subscribed = true;
            heard_subscription = message - 10;
#ifndef DEFECT_KEEPS_AT_SUBSCRIPTION
            forget()
#endif
        :: else ->
            /* core/store-redis/src/routing/invalidation.rs: on_message */
on_message:
            heard_message = message;
#ifdef DEFECT_KEEPS_VERSION
            is_cached = false
#else
            forget()
#endif
        fi;
        message = 0
       }
    :: is_subscribed ->
        /* core/store-redis/src/routing/invalidation.rs: channels_in_use */
channels_in_use:
#ifdef DEFECT_LOOKS_FIRST
        in_use = is_cached;
        is_wanted = false;
#else
        atomic { in_use = is_wanted; is_wanted = false };
        in_use = in_use || is_cached;
#endif
        atomic {
            if
            :: !in_use ->
                INVARIANT(channel_is_kept, !is_cached || is_about_to_listen || is_wanted);
                is_heard = false;
                is_asked = false;
                is_subscribed = false;
                sends = false
            :: else
            fi;
            in_use = false
        }
    :: atomic {
        is_asked && !connections_lost ->
        /* core/store-redis/src/routing/invalidation.rs: lost */
lost:
        connections_lost = true;
        is_asked = false;
        is_subscribed = false;
        sends = false;
        do
        :: messages?message
        :: empty(messages) -> break
        od;
        message = 0
       }
    od
}

active proctype clock() {
    do
    :: now < LAST_TICK -> now++
    :: now == LAST_TICK -> break
    od
}
