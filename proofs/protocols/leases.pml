/*
 * Leases: two processes take units of one key ahead of time, spend them themselves and refund the rest.
 *
 * bounds: one fixed window of 3 units after another, of three ticks each, two in all; two processes
 * bounds: each process takes up to 2 units at once, the first twice and the other once; the first may reset the key once
 * bounds: one take or refund without an answer; one process may die; a grant is refunded after one tick
 *
 * invariant window_admits_its_limit: No window admits more than its limit, plus what was leased or in flight when the key was reset.
 * invariant units_are_counted: What is held and spent of a window is never more than the store counts, plus what was leased at a reset.
 * invariant every_unit_has_an_end: The units that a process has taken are those that it holds and those that were spent, refunded or lost.
 * invariant window_ends_units: No unit is spent in a later window than the one in which the store counts it.
 * invariant refund_is_own: A refund never gives back units of other processes.
 * invariant reset_ends_units: After the answer to its own reset, a process spends no unit that was taken before.
 * invariant max_age_ends_units: A grant is not spent after its max_age.
 *
 * defect TAKES_ON_CREDIT refutes window_admits_its_limit: A take gets what it asks for, whatever remains.
 * defect HOLDS_AFTER_REFUND refutes units_are_counted: A refund without an answer stays in the lease.
 * defect GRANTS_LATE refutes every_unit_has_an_end: The reply to a take that was given up is granted as well.
 * defect ENDS_FROM_REPLY refutes window_ends_units: The end of a grant is counted from the reply.
 * defect REFUNDS_ALWAYS refutes refund_is_own: Units are refunded although their window may have ended.
 * defect KEEPS_AT_RESET refutes reset_ends_units: A take in flight is granted although the key was reset.
 * defect NEVER_OVER refutes max_age_ends_units: The age of a grant is not checked.
 */

/* Only the invariants that the macro of their name selects are checked. */
#define INVARIANT(name, condition) assert(!name || (condition))

#define LIMIT 3
#define WINDOW 3
#define LAST_TICK 5
#define MAX_AGE 1
#define SIZE 2

#define window_at(tick) ((tick) / WINDOW)

byte now;

/* The store: the units counted in the current window, and how often the key was reset. */
byte used, epoch;

/* What was admitted in the current window since the last reset, how much of it the store counts, and what was leased at the reset. */
byte admitted, of_counted, leased_at_reset;

/* The grant of each process, when it was requested and when it ends; its window and epoch are known to the model only. */
byte held[2], taken_at[2], ends_at[2], of_window[2], of_epoch[2];
byte resets[2];

/* A take in flight: 0 none, 1 sent, 2 applied. A refund in flight has units. */
byte taking[2], got[2], got_window[2], got_epoch[2], asked_at[2], left[2], resets_seen[2], takes[2];
byte refunding[2], refund_window[2], refund_epoch[2], refund_by[2];
/* Of each process: the units that were taken, less those that were spent, refunded or lost. */
byte owed[2];
bool is_dead, has_failed;
byte reset_answered;

inline settle_window() {
    /* A tick may begin a new window. */
    if
    :: now % WINDOW == 0 -> used = 0; admitted = 0; of_counted = 0; leased_at_reset = 0
    :: else
    fi
}

#define in_hand(p) ((of_window[p] == window_at(now) && of_epoch[p] == epoch -> held[p] : 0) \
    + (taking[p] == 2 && got_window[p] == window_at(now) && got_epoch[p] == epoch -> got[p] : 0))

inline check_store() {
    INVARIANT(units_are_counted, in_hand(0) + in_hand(1) + of_counted <= used + leased_at_reset);
    INVARIANT(every_unit_has_an_end, owed[0] == held[0] + refunding[0] && owed[1] == held[1] + refunding[1])
}

inline drop_grant(me) {
    held[me] = 0;
    taken_at[me] = 0;
    ends_at[me] = 0;
    of_window[me] = 0;
    of_epoch[me] = 0
}

inline drop_take(me) {
    taking[me] = 0;
    got[me] = 0;
    got_window[me] = 0;
    got_epoch[me] = 0;
    asked_at[me] = 0;
    left[me] = 0;
    resets_seen[me] = 0
}

active [2] proctype process() {
end:
    do
    :: atomic {
        held[_pid] > 0 && !(is_dead && _pid == 1) &&
#ifndef DEFECT_NEVER_OVER
        now - taken_at[_pid] < MAX_AGE + 1 &&
#endif
        now < ends_at[_pid] ->
        /* core/store-redis/src/lease/key_lease.rs: spend */
spend:
        INVARIANT(window_ends_units, of_window[_pid] == window_at(now));
        INVARIANT(max_age_ends_units, now - taken_at[_pid] <= MAX_AGE);
        INVARIANT(reset_ends_units, of_epoch[_pid] == epoch || reset_answered < epoch || _pid == 1);
        held[_pid]--;
        owed[_pid]--;
        admitted++;
        of_counted = of_counted + (of_epoch[_pid] == epoch -> 1 : 0);
        INVARIANT(window_admits_its_limit, admitted <= LIMIT + leased_at_reset);
        check_store()
       }
    :: atomic {
        held[_pid] == 0 && taking[_pid] == 0 && takes[_pid] < 2 - _pid && !(is_dead && _pid == 1) ->
        /* core/store-redis/src/lease/key_lease.rs: begin_taking */
begin_taking:
        takes[_pid]++;
        taking[_pid] = 1;
        asked_at[_pid] = now;
        resets_seen[_pid] = resets[_pid]
       }
    :: atomic {
        taking[_pid] == 2 && !(is_dead && _pid == 1) ->
        /* core/store-redis/src/lease/key_lease.rs: granted */
granted:
        owed[_pid] = owed[_pid] + got[_pid];
        if
#ifndef DEFECT_KEEPS_AT_RESET
        :: resets_seen[_pid] != resets[_pid] -> owed[_pid] = owed[_pid] - got[_pid]
#endif
        :: else ->
            held[_pid] = got[_pid];
            taken_at[_pid] = asked_at[_pid];
#ifdef DEFECT_ENDS_FROM_REPLY
            ends_at[_pid] = now + left[_pid];
#else
            ends_at[_pid] = asked_at[_pid] + left[_pid];
#endif
            of_window[_pid] = got_window[_pid];
            of_epoch[_pid] = got_epoch[_pid]
        fi;
        drop_take(_pid);
        if
        :: held[_pid] == 0 -> drop_grant(_pid)
        :: else
        fi;
        check_store()
       }
    :: atomic {
        /* The take may have been applied: its units are lost. */
        taking[_pid] > 0 && !has_failed && !(is_dead && _pid == 1) ->
        /* core/store-redis/src/lease.rs: taken */
taken_unknown:
        has_failed = true;
#ifdef DEFECT_GRANTS_LATE
        held[_pid] = got[_pid];
        of_window[_pid] = got_window[_pid];
        of_epoch[_pid] = got_epoch[_pid];
        taken_at[_pid] = asked_at[_pid];
        ends_at[_pid] = asked_at[_pid] + left[_pid];
#endif
        drop_take(_pid);
        check_store()
       }
    :: atomic {
        held[_pid] > 0 && refunding[_pid] == 0 && (now - taken_at[_pid] >= MAX_AGE || now >= ends_at[_pid]) && !(is_dead && _pid == 1) ->
        /* core/store-redis/src/lease/key_lease.rs: over */
over:
        if
#ifdef DEFECT_REFUNDS_ALWAYS
        :: true ->
#else
        :: now < ends_at[_pid] ->
#endif
            /* core/store-redis/src/lease/refund.rs: refund */
refund:
            refunding[_pid] = held[_pid];
            refund_window[_pid] = of_window[_pid];
            refund_epoch[_pid] = of_epoch[_pid];
            refund_by[_pid] = ends_at[_pid];
#ifdef DEFECT_HOLDS_AFTER_REFUND
            refunding[_pid] = held[_pid];
#else
            drop_grant(_pid)
#endif
        :: else ->
            owed[_pid] = owed[_pid] - held[_pid];
            drop_grant(_pid)
        fi
       }
    :: atomic {
        _pid == 0 && resets[0] == 0 ->
        /* core/store-redis/src/lease.rs: forget */
forget:
        resets[0]++;
        owed[0] = owed[0] - held[0];
        drop_grant(0)
       }
    od
}

/* The scripts, in the order in which requests arrive. */
active proctype server() {
    byte p;
end:
    do
    :: atomic {
        taking[0] == 1 || taking[1] == 1 ->
        if
        :: taking[0] == 1 -> p = 0
        :: taking[1] == 1 -> p = 1
        fi;
        /* core/rules/src/general/decide.rs: take_beside */
take_beside:
#ifdef DEFECT_TAKES_ON_CREDIT
        got[p] = SIZE;
#else
        got[p] = (LIMIT - used < SIZE -> LIMIT - used : SIZE);
#endif
        used = used + got[p];
        got_window[p] = window_at(now);
        got_epoch[p] = epoch;
        left[p] = WINDOW - now % WINDOW;
        taking[p] = 2;
        p = 0
       }
    :: atomic {
        refunding[0] > 0 || refunding[1] > 0 ->
        if
        :: refunding[0] > 0 -> p = 0
        :: refunding[1] > 0 -> p = 1
        fi;
        if
#ifndef DEFECT_REFUNDS_ALWAYS
        :: now >= refund_by[p] -> owed[p] = owed[p] - refunding[p] /* after its deadline the script does nothing */
#endif
        :: else ->
            /* core/rules/src/general/decide.rs: apply_general */
apply_general_refund:
            INVARIANT(refund_is_own, refund_window[p] == window_at(now));
            used = (used > refunding[p] -> used - refunding[p] : 0);
            if
            :: true -> owed[p] = owed[p] - refunding[p]
            :: !has_failed -> has_failed = true; owed[p] = owed[p] - refunding[p] /* the reply is lost */
            fi
        fi;
        refunding[p] = 0;
        refund_window[p] = 0;
        refund_epoch[p] = 0;
        refund_by[p] = 0;
        check_store();
        p = 0
       }
    :: atomic {
        resets[0] == 1 && epoch == 0 ->
        /* core/store-redis/src/script/lua/transition/decide.lua: decide */
decide_reset:
        leased_at_reset = in_hand(0) + in_hand(1) + refunding[0] + refunding[1];
        epoch = 1;
        used = 0;
        of_counted = 0;
        admitted = 0
       }
    :: atomic {
        epoch == 1 && reset_answered == 0 ->
        /* core/store-redis/src/dispatch.rs: start_leased */
start_leased:
        reset_answered = 1;
        resets[0]++;
        owed[0] = owed[0] - held[0];
        drop_grant(0)
       }
    od
}

active proctype environment() {
    do
    :: atomic {
        now < LAST_TICK ->
        now++;
        settle_window()
       }
    :: atomic {
        !is_dead ->
fault_process_dies:
        is_dead = true
       }
    :: now == LAST_TICK && is_dead -> break
    :: now == LAST_TICK -> break
    od
}
