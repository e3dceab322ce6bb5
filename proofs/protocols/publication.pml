/*
 * Publication of documents and entries through Redis, and a process that follows them.
 *
 * bounds: two publishers that expect version 0, one of which may publish the next version, and an author of one entry
 * bounds: one call that times out, and arrives late or never
 * bounds: one follower, whose connection ends once; the log is cut once
 * bounds: the database is emptied once, and its log continues with newer or with older ids
 *
 * invariant one_publisher_wins: Of all calls that expect the same version of the document, one is applied.
 * invariant a_conflict_is_true: A publisher gets a conflict only when a call that expected the same version was applied, or none there is.
 * invariant document_does_not_go_back: The follower never applies an older document than it has, unless the database was emptied.
 * invariant document_is_of_its_version: Document and version that the follower applies were published together.
 * invariant configuration_stays: The follower keeps its entries when the database is emptied.
 * invariant follower_converges: In the end the follower has what is published, whatever it has missed.
 * invariant follower_rests: In the end the follower loads everything no more.
 *
 * defect PUBLISHES_BLINDLY refutes one_publisher_wins: The script does not compare the version.
 * defect ANSWERS_CONFLICT refutes a_conflict_is_true: The script refuses the version that is there.
 * defect READS_TWICE refutes document_is_of_its_version: The follower reads version and document with two commands.
 * defect READS_HEAD_LAST refutes follower_converges: A load reads the main hash after the entries.
 * defect IGNORES_GAPS refutes follower_converges: Records are applied although earlier ones are missing.
 * defect TRUSTS_THE_LOG refutes follower_converges: The main hash is not read again after a read of the log that returns nothing.
 * defect READS_A_REPLICA refutes document_does_not_go_back: The document may be read from a copy that is behind.
 * defect LOADS_UNCHECKED refutes configuration_stays: A load is applied whatever has become of the database meanwhile.
 * defect STARTS_UNCHECKED refutes follower_converges: Entries are applied although there was no main hash when the load began.
 * defect WAITS_FOR_A_DOCUMENT refutes follower_rests: A main hash without a document counts as a change.
 */

/* Only the invariants that the macro of their name selects are checked. */
#define INVARIANT(name, condition) assert(!name || (condition))

#define FIRST_ID 6 /* the ids before it are those of a log that begins again with older ones */
#define IDS 11

/* The database: the main hash, one entry and the log. */
byte version, last, document_version, the_document, the_entry;
byte next_id = FIRST_ID, log_from = FIRST_ID;
byte after[IDS], version_of[IDS], entry_of[IDS]; /* entry_of is 0 where the record is one of a document */
bool was_emptied, is_gone, was_cut;
byte earlier_document, earlier_version; /* what a copy of the database may still have */

/* The follower's state. */
bool is_complete;
byte known_version, known_last, known_document_version, applied_document, applied_entry;
bool applied_since_emptied, loads;

/* Each call of each publisher: the version that it expects and 1, or 0 without one. */
byte pending[4];
byte answer[2]; /* 0 none, 1 done, 2 conflict */
byte calls[2];
byte applied[4]; /* how many calls that expected this version were applied */
byte timeouts = 1, connections_lost = 1;
byte more = 1; /* how often a publisher that has succeeded publishes the next version */

/* Each document is a number that says by which publisher and as which version it was published. */
#define document_of(publisher, number) (2 * (number) + (publisher) + 1)
#define version_in(of_document) (((of_document) - 1) / 2)

inline append(of_entry) {
    version++;
    after[next_id] = last;
    version_of[next_id] = version;
    entry_of[next_id] = of_entry;
    last = next_id;
    next_id++;
    is_gone = false
}

active [2] proctype publisher() {
    byte expected;
    /* core/store-redis/src/configuration/publish.rs: publish_document */
publish_document:
    atomic {
        pending[2 * _pid + calls[_pid]] = expected + 1;
        calls[_pid]++
    }
    if
    :: atomic {
        answer[_pid] == 2 ->
        INVARIANT(a_conflict_is_true, applied[expected] > 0 || was_emptied)
       }
    :: atomic {
        answer[_pid] == 1 ->
        if
        :: calls[_pid] < 2 && more > 0 ->
            more--;
            answer[_pid] = 0;
            expected = document_version;
            goto publish_document
        :: true
        fi
       }
    :: atomic {
        timeouts > 0 && answer[_pid] == 0 ->
        timeouts--;
        if
        :: calls[_pid] < 2 -> goto publish_document
        :: else
        fi
       }
    fi
}

/* The server, and the network in front of it. */
active proctype server() {
    byte call;
end:
    do
    :: atomic {
        pending[0] || pending[1] || pending[2] || pending[3] ->
        if
        :: pending[0] -> call = 0
        :: pending[1] -> call = 1
        :: pending[2] -> call = 2
        :: pending[3] -> call = 3
        fi;
        if
        :: true
            /* core/store-redis/src/configuration/lua/publish.lua: publish */
publish:
            if
#ifdef DEFECT_PUBLISHES_BLINDLY
            :: true
#elif defined(DEFECT_ANSWERS_CONFLICT)
            :: document_version + 1 != pending[call]
#else
            :: document_version + 1 == pending[call]
#endif
             -> earlier_document = the_document;
                earlier_version = document_version;
                document_version++;
                the_document = document_of(call / 2, document_version);
                append(0);
                applied[pending[call] - 1]++;
                INVARIANT(one_publisher_wins, applied[pending[call] - 1] == 1);
                if
                :: call % 2 + 1 == calls[call / 2] -> answer[call / 2] = 1
                :: else
                fi
            :: else ->
                if
                :: call % 2 + 1 == calls[call / 2] -> answer[call / 2] = 2
                :: else
                fi
            fi
        :: call % 2 + 1 < calls[call / 2] -> skip /* a call that has timed out never arrives */
        fi;
        pending[call] = 0;
        call = 0
       }
    od
}

active proctype author() {
    if
    :: atomic {
            true ->
            /* core/store-redis/src/configuration/lua/entries.lua: entries */
entries:
            the_entry = 1;
            append(1)
       }
    :: was_emptied
    fi
}

active proctype operator() {
fault_the_log_is_cut:
    atomic {
        log_from = next_id;
        was_cut = true
    }
    if
    :: true
    :: atomic {
        !was_emptied ->
fault_the_database_is_emptied:
        version = 0;
        last = 0;
        document_version = 0;
        the_document = 0;
        the_entry = 0;
        earlier_document = 0;
        earlier_version = 0;
        applied[0] = 0;
        applied[1] = 0;
        applied[2] = 0;
        applied[3] = 0;
        was_emptied = true;
        is_gone = true;
        if
        :: next_id = 1
        :: true
        fi;
        log_from = next_id
       }
    fi
}

/* A command over a connection that may end. */
#define command(at) atomic { connections_lost > 0 -> connections_lost--; goto at }

/* core/store-redis/src/configuration.rs: records */
inline records() {
    id = head_last + 1;
    if
    :: id < log_from -> id = log_from
    :: else
    fi;
    do
    :: id < next_id && !has_gap ->
        if
#ifdef DEFECT_IGNORES_GAPS
        :: true
#else
        :: after[id] == head_last
#endif
         -> head_last = id;
            head_version = version_of[id];
            if
            :: entry_of[id] == 0 -> is_published = true
            :: else -> read_entry = entry_of[id]
            fi
        :: else -> has_gap = true
        fi;
        id++
    :: else -> break
    od;
    id = 0
}

/* core/document/src/source/follower.rs: take_change */
inline take_change_of(of_entry, is_all) {
    if
    :: is_all ->
        INVARIANT(configuration_stays, of_entry != 0 || applied_entry == 0 || of_new_head);
        applied_entry = of_entry
    :: !is_all && of_entry != 0 -> applied_entry = of_entry
    :: else
    fi;
    if
    :: read_document != 0 ->
        INVARIANT(document_is_of_its_version, version_in(read_document) == read_version);
        INVARIANT(document_does_not_go_back, of_new_document != applied_since_emptied || read_version >= known_document_version);
        known_document_version = read_version;
        applied_document = read_document;
        applied_since_emptied = of_new_document
    :: else
    fi;
    read_document = 0;
    read_version = 0;
    of_new_document = false;
    is_complete = true
}

active proctype follower() {
    bool has_gap, is_published, reads_again, of_new_head, of_new_document;
    byte head_version, head_last, read_entry, read_document, read_version, id;
    byte loaded_version, loaded_last, loaded_entry;
to_connected:
    atomic {
        head_version = 0;
        head_last = 0;
        read_entry = 0;
        read_document = 0;
        read_version = 0;
        is_published = false;
        reads_again = false;
        of_new_head = false;
        of_new_document = false;
        loaded_version = 0;
        loaded_last = 0;
        loaded_entry = 0;
        loads = false
    }
    /* core/store-redis/src/configuration/follow.rs: is_newest */
is_newest:
    if
    :: command(to_connected)
    :: atomic {
        if
        :: !is_complete -> goto to_not_newest
        :: is_complete && is_gone -> reads_again = false; goto read
        :: else ->
            if
#ifdef DEFECT_WAITS_FOR_A_DOCUMENT
            :: version == known_version && last == known_last && document_version == known_document_version ->
#else
            :: version == known_version && last == known_last &&
               (document_version == known_document_version || document_version == 0) ->
#endif
                reads_again = false;
                goto read
            :: else -> goto to_not_newest
            fi
        fi;
to_not_newest:
        loads = true;
        if
        :: reads_again -> goto read
        :: else
        fi
       }
    fi;
    /* core/store-redis/src/configuration/follow.rs: load */
load:
    atomic {
        reads_again = false;
        loads = true;
        is_published = true
    }
#ifndef DEFECT_READS_HEAD_LAST
load_the_head:
    if
    :: command(to_connected)
    :: d_step { true -> head_version = version; head_last = last; of_new_head = was_emptied && !is_gone }
    fi;
#endif
#ifndef DEFECT_LOADS_UNCHECKED
    if
    :: atomic { head_version == 0 && known_version > 0 -> goto to_connected }
    :: else
    fi;
#endif
load_the_entries:
    if
    :: command(to_connected)
    :: read_entry = the_entry
    fi;
#ifdef DEFECT_READS_HEAD_LAST
load_the_head:
    if
    :: command(to_connected)
    :: d_step { true -> head_version = version; head_last = last; of_new_head = was_emptied && !is_gone }
    fi;
#endif
    goto document;
    /* core/store-redis/src/configuration/follow.rs: read */
read:
    if
    :: command(to_connected)
    :: atomic {
        d_step {
            head_last = known_last;
            records()
        }
        if
        :: has_gap ->
            has_gap = false;
            is_published = false;
            read_entry = 0;
            loads = true;
            goto load
        :: !has_gap && head_last == known_last && !reads_again ->
#ifdef DEFECT_TRUSTS_THE_LOG
            goto read
#else
            reads_again = true;
            goto is_newest
#endif
        :: !has_gap && head_last == known_last && reads_again ->
            loads = true;
            goto load
        :: else ->
            reads_again = false;
            loads = false
        fi
       }
    fi;
    /* core/store-redis/src/configuration/follow.rs: take */
take:
    if
    :: is_published
    :: else -> goto take_change
    fi;
    /* core/store-redis/src/configuration.rs: document */
document:
#ifdef DEFECT_READS_TWICE
    read_version = document_version;
#endif
    if
    :: command(to_connected)
    :: d_step {
        true ->
#ifndef DEFECT_READS_TWICE
        read_version = document_version;
#endif
        read_document = the_document;
        of_new_document = was_emptied
       }
#ifdef DEFECT_READS_A_REPLICA
    :: d_step { true -> read_version = earlier_version; read_document = earlier_document; of_new_document = was_emptied }
#endif
    fi;
    if
    :: atomic { !loads -> goto take_change }
    :: else
    fi;
#ifndef DEFECT_LOADS_UNCHECKED
#ifndef DEFECT_STARTS_UNCHECKED
    if
    :: atomic { head_version == 0 && (read_entry != 0 || read_document != 0) -> goto to_connected }
    :: else
    fi;
#endif
load_the_log:
    if
    :: command(to_connected)
    :: atomic {
        d_step {
            loaded_version = head_version;
            loaded_last = head_last;
            loaded_entry = read_entry;
            is_published = false;
            read_entry = 0;
            records()
        }
        if
        :: has_gap -> has_gap = false; goto to_connected
        :: !has_gap && head_last != loaded_last ->
            /* What was loaded is applied, and then the records. */
            take_change_of(loaded_entry, true);
            known_version = loaded_version;
            known_last = loaded_last;
            loaded_version = 0;
            loaded_last = 0;
            loaded_entry = 0;
            of_new_head = false;
            loads = false;
            goto take
        :: else -> read_entry = loaded_entry; loaded_version = 0; loaded_last = 0; loaded_entry = 0
        fi
       }
    fi;
load_the_head_again:
    if
    :: command(to_connected)
    :: atomic {
        if
        :: version == head_version && last == head_last -> goto take_change
        :: else -> goto to_connected
        fi
       }
    fi;
#endif
    /* core/document/src/source/follower.rs: take_change */
take_change:
    atomic {
        take_change_of(read_entry, loads);
        known_version = head_version;
        known_last = head_last;
        head_version = 0;
        head_last = 0;
        read_entry = 0;
        read_document = 0;
        read_version = 0;
        is_published = false;
        of_new_head = false;
        of_new_document = false;
        loads = false;
        goto read
    }
}

#define has_all (is_gone || is_complete && applied_entry == the_entry && (the_document == 0 || applied_document == the_document))

ltl follower_converges { <> [] has_all }
ltl follower_rests { <> [] !loads }
