/*
 * A reservation of one id: it is made, renewed and committed by calls that may be repeated and arrive late, and it ends by itself.
 *
 * bounds: one key of capacity 3; a job that reserves 2 units and spends 1, and runs twice under one id if its commit is remembered
 * bounds: another caller that reserves 2 units and spends 1, or cancels the job's reservation
 * bounds: four ticks, a ttl of 2 ticks, a commit that is remembered for 2 or not at all
 * bounds: two requests or replies of the job that are lost; a lost request arrives late or never; the job may die before each call
 *
 * invariant charged_once: Of all commits of an id one charges, as long as the id is remembered.
 * invariant known_id_charges_nothing: A reservation made while its id was remembered charges nothing, however late its commit arrives.
 * invariant answer_is_true: A commit that found nothing and is not repeated has not charged before, as long as the id is remembered.
 * invariant total_is_once: A job that charges what such a commit did not charge has charged once in the end.
 * invariant ended_once: Of several commits and cancels of one reservation, one finds it.
 * invariant stays_within_capacity: What is charged and set aside never exceeds the capacity.
 * invariant units_are_freed: What is set aside is denied to others until the reservation has ended, and no longer.
 * invariant kept_is_alive: A handle that is not lost, and that nothing else has ended, has its reservation in the store.
 *
 * defect FORGETS_COMMITS refutes charged_once: A commit is not remembered.
 * defect LOOKS_AT_COMMIT refutes known_id_charges_nothing: Whether the id is known is looked up at the commit, not at the reserve.
 * defect ANSWERS_NOT_FOUND refutes answer_is_true: A commit without a reservation does not look at the remembered ones.
 * defect CHARGES_WHEN_UNKNOWN refutes total_is_once: The job charges when its commit got no reply.
 * defect IGNORES_DEADLINE refutes total_is_once: The script decides requests that arrive after their deadline.
 * defect KEEPS_ENDED refutes ended_once: A commit leaves the reservation in the list.
 * defect IGNORES_HELD refutes stays_within_capacity: A reserve does not count what others have set aside.
 * defect COUNTS_ENDED refutes units_are_freed: Reservations count until they are removed from the list.
 * defect COUNTS_FROM_REPLY refutes kept_is_alive: The handle counts the ttl from the reply.
 * finding LATE_RESERVE_WITHOUT_REMEMBER refutes charged_once: Without remember, a copy of a reserve arrives after the commit.
 * finding RESERVED_BEFORE refutes kept_is_alive: A reserve finds an earlier reservation, which ends before the first renewal arrives.
 * finding LATE_RESERVE_AFTER_COMMIT refutes total_is_once: After a cancel, copies of a reserve and of a commit arrive late.
 */

/* Only the invariants that the macro of their name selects are checked. */
#define INVARIANT(name, condition) assert(!name || (condition))

#define CAPACITY 3
#define TTL 2
#define DEADLINE 1 /* a request is decided in the tick in which it was sent, or not at all */
#define LAST_TICK 4

mtype = { none, reserve, renew, commit, allowed, denied, found, repeated, not_found };

byte now;
byte remember; /* 0: commits are not remembered */

/* The key: what is charged, the job's reservation and whether it is one of a known id, the other caller's, and the remembered commit. */
byte used, units, ends, other_ends, remembered_until;
bool is_listed, is_repeated, other_is_listed;

/* What is known of the past. */
byte ended, charged, charged_after; /* by commits, and by the job itself */
bool was_known, was_forgotten, was_made_late, is_of_earlier, runs_again, is_answered;

/* The job's call and its answer, and requests of calls that were given up. */
mtype call = none, answer = none;
byte call_by, late_reserve, late_commit; /* until when a request may arrive; 0 without one */
byte lost = 2;

#define is_alive (is_listed && ends > now)
#define other_is_alive (other_is_listed && other_ends > now)
#define is_known (remembered_until > now)
#ifdef DEFECT_COUNTS_ENDED
#define held ((is_listed -> units : 0) + (other_is_alive -> 2 : 0))
#else
#define held ((is_alive -> units : 0) + (other_is_alive -> 2 : 0))
#endif
#define really_held ((is_alive -> units : 0) + (other_is_alive -> 2 : 0))

/* core/rules/src/general/decide.rs: decide_admission */
inline decide_admission(result) {
    if
    :: is_alive ->
        result = allowed;
#ifndef FINDING_RESERVED_BEFORE
        is_of_earlier = true
#endif
    :: else ->
        if
#ifdef DEFECT_IGNORES_HELD
        :: used + (is_known -> 0 : 2) <= CAPACITY ->
#else
        :: used + held + (is_known -> 0 : 2) <= CAPACITY ->
#endif
            units = (is_known -> 0 : 2);
#ifndef DEFECT_LOOKS_AT_COMMIT
            is_repeated = is_known;
#endif
            was_known = is_known;
            is_listed = true;
            ends = now + TTL;
            ended = 0;
            is_of_earlier = false;
            result = allowed
        :: else ->
            INVARIANT(units_are_freed, used + really_held + (is_known -> 0 : 2) > CAPACITY);
            result = denied
        fi
    fi
}

/* core/rules/src/general/decide.rs: change_reservation */
inline change_reservation(operation, result) {
    if
    :: operation == renew ->
        if
        :: is_alive -> ends = now + TTL; is_of_earlier = false; result = found
        :: else -> result = not_found
        fi
    :: operation == commit && is_alive ->
        ended++;
        INVARIANT(ended_once, ended == 1);
        if
        :: !is_repeated ->
            INVARIANT(charged_once, charged == 0 || was_forgotten);
            INVARIANT(known_id_charges_nothing, !was_known);
            used++;
            charged++;
#ifndef DEFECT_FORGETS_COMMITS
            remembered_until = (remember > 0 -> now + remember : 0);
#endif
            result = found
        :: else -> result = repeated
        fi;
#ifndef DEFECT_KEEPS_ENDED
        is_listed = false;
        is_repeated = false;
        was_known = false;
        units = 0;
        ends = 0
#endif
    :: operation == commit && !is_alive ->
#ifdef DEFECT_ANSWERS_NOT_FOUND
        result = not_found
#else
        result = (is_known -> repeated : not_found)
#endif
        ;
        INVARIANT(answer_is_true, result == repeated || charged == 0 || was_forgotten || remember == 0)
    fi
}

inline decide(operation, result) {
    true;
    /* core/rules/src/general/decide.rs: apply_general */
apply_general:
    if
    :: operation == reserve -> decide_admission(result)
    :: else -> change_reservation(operation, result)
    fi;
    INVARIANT(stays_within_capacity, used + really_held <= CAPACITY)
}

/* The script does nothing after the deadline of its call. */
#ifdef DEFECT_IGNORES_DEADLINE
#define is_in_time(by) true
#else
#define is_in_time(by) (now < by)
#endif

active proctype server() {
    mtype ignored = none;
end:
    do
    :: atomic { call != none && is_in_time(call_by) -> decide(call, answer); call = none; call_by = 0 }
    :: atomic { late_reserve && is_in_time(late_reserve) ->
        was_made_late = was_made_late || now < late_reserve;
        decide(reserve, ignored);
        late_reserve = 0;
        ignored = none
       }
    :: atomic { late_commit && is_in_time(late_commit) -> decide(commit, ignored); late_commit = 0; ignored = none }
    :: atomic { late_reserve -> late_reserve = 0 }
    :: atomic { late_commit -> late_commit = 0 }
    od
}

/* One call of the job; without an answer it is made again, unless the job has died. */
inline ask(operation) {
    do
    :: atomic {
        call = operation;
        call_by = now + DEADLINE
       }
       if
       :: answer != none -> break
       :: atomic { call != none && now >= call_by -> call = none; call_by = 0 }
#ifndef FINDING_LATE_RESERVE_WITHOUT_REMEMBER
       :: atomic {
            lost > 0 && call == reserve && !late_reserve && remember > 0 ->
#else
       :: atomic {
            lost > 0 && call == reserve && !late_reserve ->
#endif
            lost--;
            late_reserve = call_by;
            call = none;
            call_by = 0
          }
       :: atomic { lost > 0 && call == commit && !late_commit -> lost--; late_commit = call_by; call = none; call_by = 0;
#ifdef DEFECT_CHARGES_WHEN_UNKNOWN
            charged_after++
#endif
          }
       :: atomic { lost > 0 && call == none && answer != none -> lost--; answer = none;
#ifdef DEFECT_CHARGES_WHEN_UNKNOWN
            charged_after = charged_after + (operation == commit -> 1 : 0)
#endif
          }
       fi
    od
}

active proctype job() {
    byte kept_until, before;
    bool is_second;
    atomic {
        if
        :: remember = 0
        :: remember = 2 ->
            if
            :: runs_again = true
            :: true
            fi
        fi
    }
to_again:
    before = now;
    /* core/src/limiter/reserve.rs: reserve */
reserve_units:
    ask(reserve);
    if
    :: atomic { answer == denied -> answer = none; goto to_over }
    :: atomic {
        answer == allowed ->
        answer = none;
        /* core/src/limiter/renewal.rs: add */
add:
#ifdef DEFECT_COUNTS_FROM_REPLY
        kept_until = now + TTL;
#else
        kept_until = before + TTL;
#endif
        before = 0
       }
    fi;
    if
    :: before = now;
        /* core/src/limiter/renewal_task.rs: renew_due */
renew_due:
       ask(renew);
       /* core/src/limiter/renewal.rs: answered */
answered:
       atomic {
            if
            :: answer == found ->
#ifdef DEFECT_COUNTS_FROM_REPLY
                kept_until = now + TTL
#else
                kept_until = before + TTL
#endif
            :: else -> kept_until = 0
            fi;
            answer = none;
            before = 0
       }
    :: true
    fi;
    /* core/src/limiter/renewal.rs: is_lost */
is_lost:
    atomic {
        INVARIANT(kept_is_alive, now >= kept_until || is_alive || ended > 0 || is_of_earlier);
        kept_until = 0
    }
    if
    :: goto to_over
    :: true
    fi;
    /* core/src/limiter/reservation.rs: commit */
commit_units:
    ask(commit);
    atomic {
        is_answered = true;
        if
        :: answer == not_found && !runs_again -> charged_after++
        :: else
        fi;
        answer = none
    }
to_over:
    if
    :: runs_again && !is_second -> is_second = true; goto to_again
    :: else
    fi
}

/* Another caller that reserves, or one that cancels the job's reservation. */
active proctype other_caller() {
    if
    :: true ->
        skip;
        /* core/src/limiter/reserve.rs: reserve */
reserve_for_other:
        atomic {
            if
            :: used + held + 2 <= CAPACITY -> other_is_listed = true; other_ends = now + TTL
            :: else -> INVARIANT(units_are_freed, used + really_held + 2 > CAPACITY); goto to_end
            fi;
            INVARIANT(stays_within_capacity, used + really_held <= CAPACITY)
        }
        /* core/rules/src/general/decide.rs: settle */
settle:
        atomic {
            if
            :: other_is_alive -> used++; other_is_listed = false; other_ends = 0
            :: true
            fi
        }
    :: atomic {
        is_alive;
        /* core/src/limiter/reservation.rs: cancel */
cancel:
        ended++;
        INVARIANT(ended_once, ended == 1);
        is_listed = false;
        is_repeated = false;
        was_known = false;
        units = 0;
        ends = 0
       }
    :: now == LAST_TICK
    fi;
to_end:
    skip
}

active proctype clock() {
    do
    :: atomic {
        now < LAST_TICK ->
        now++;
        was_forgotten = was_forgotten || charged > 0 && remember > 0 && !is_known;
        /* The same state as before, written in one way. */
        remembered_until = (is_known -> remembered_until : 0);
        ends = (ends > now -> ends : 0);
        other_ends = (other_ends > now -> other_ends : 0)
       }
    :: now == LAST_TICK -> break
    od
}

/* When nothing else happens any more. */
active proctype end_of_all() {
    timeout ->
    atomic {
#ifdef FINDING_LATE_RESERVE_AFTER_COMMIT
        was_made_late = false;
#endif
        is_answered = is_answered && !was_made_late && !runs_again && !was_forgotten && remember > 0;
        INVARIANT(total_is_once, !is_answered || charged + charged_after == 1);
        INVARIANT(units_are_freed, !is_alive || ends > LAST_TICK)
    }
}
