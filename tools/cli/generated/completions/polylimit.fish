# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_polylimit_global_optspecs
    string join \n store= policies= json audit-log= quiet h/help V/version
end

function __fish_polylimit_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_polylimit_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_polylimit_using_subcommand
    set -l cmd (__fish_polylimit_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c polylimit -n "__fish_polylimit_needs_command" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_needs_command" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_needs_command" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_needs_command" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_needs_command" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_needs_command" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_needs_command" -s V -l version -d 'Print version'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "check" -d 'Decides, and spends the cost when allowed'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "peek" -d 'The decision that a check would give, without spending'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "take" -d 'Spends as much of the cost as is allowed'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "charge" -d 'Spends the cost whether it fits or not'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "refund" -d 'Gives back up to what is used'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "reset" -d 'Forgets keys'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "explain" -d 'Why a key would be allowed or denied, quota by quota, without spending'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "list" -d 'Lists the keys of the store, with what is used of their quotas'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "top" -d 'The keys of which the most is used'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "deny" -d 'Denies clients, attributes or keys, whatever their quotas say'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "allow" -d 'Admits clients, attributes or keys, whatever their quotas say'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "block" -d 'Denies keys of a policy for a time'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "policies" -d 'Reads and changes the document of limits'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "stats" -d 'Counters of this process with the store, and the configuration in force'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "doctor" -d 'Examines the store for settings that make limits unreliable'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "bench" -d 'Measures how fast a store decides'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "simulate" -d 'Decides generated or logged requests by limits, without a store'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "serve" -d 'Serves limits over HTTP and RESP'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "probe" -d 'Asks a server whether it is ready, for health checks of containers'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "completions" -d 'Writes the completions for a shell'
complete -c polylimit -n "__fish_polylimit_needs_command" -f -a "man" -d 'Writes a manual page'
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -l cost -d 'Units, up to 10^12' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand check" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -l cost -d 'Units, up to 10^12' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand peek" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -l cost -d 'Units, up to 10^12' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand take" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -l cost -d 'Units, up to 10^12' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand charge" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -l cost -d 'Units, up to 10^12' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand refund" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l prefix -d 'All keys that begin with this; they are counted, and a terminal is asked' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l yes -d 'Does not ask'
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand reset" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -l cost -d 'Units, up to 10^12' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand explain" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l prefix -d 'What the keys begin with' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l used -d 'Keys of which at least so much is used, in percent' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l most -d 'How many keys, 1 or more' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l examine -d 'How many keys the store goes over at most, 1 or more' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l pace -d 'The share of a server\'s time that this may take, 1 to 100' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l blocked -d 'Blocked keys only'
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l prefix -d 'What the keys begin with' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l most -d 'How many keys' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l examine -d 'How many keys the store goes over at most, 1 or more' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l pace -d 'The share of a server\'s time that this may take, 1 to 100' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l denied -d 'The keys that the processes deny most often, as they report, without a look at the store\'s keys'
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand top" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -f -a "add" -d 'Adds an item'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -f -a "remove" -d 'Removes an item'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and not __fish_seen_subcommand_from add remove list" -f -a "list" -d 'Lists the items of the document and those that were added'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l for -d 'For how long, such as 15m, 1h or 30d; without it until it is removed' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand deny; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -f -a "add" -d 'Adds an item'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -f -a "remove" -d 'Removes an item'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and not __fish_seen_subcommand_from add remove list" -f -a "list" -d 'Lists the items of the document and those that were added'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l for -d 'For how long, such as 15m, 1h or 30d; without it until it is removed' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand allow; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -f -a "add" -d 'Blocks a key'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -f -a "remove" -d 'Ends the block of a key, and forgets what a penalty has counted'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and not __fish_seen_subcommand_from add remove list" -f -a "list" -d 'Lists the blocked keys, as `list --blocked` does'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l for -d 'For how long, 1 ms to 366 days, such as 15m, 1h or 30d' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l examine -d 'How many keys the store goes over at most, 1 or more' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l pace -d 'The share of a server\'s time that this may take, 1 to 100' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand block; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "get" -d 'Writes the document that is published in the store'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "put" -d 'Publishes a document in the store'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "diff" -d 'Compares a document with the published one, or with another file'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "validate" -d 'Checks documents'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "history" -d 'Lists the changes of documents and items in the store, the newest first'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "rollback" -d 'Publishes an earlier document again'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and not __fish_seen_subcommand_from get put diff validate history rollback import" -f -a "import" -d 'Makes a document from limits of another program'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -l version -d 'One of the last 32 documents; without it the newest' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l expect -d 'The version of the document that this one replaces; 0 for the first' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from put" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -l version -d 'One of the last 32 published documents; without it the newest' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from validate" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from validate" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from validate" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from validate" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from validate" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from validate" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -l most -d 'How many changes' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from history" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l why -d 'The reason, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l by -d 'Name of the author, for the log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from rollback" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -l from -d 'What the file is from' -r -f -a "envoy-ratelimit\t'YAML of envoyproxy/ratelimit'"
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand policies; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -l fleet -d 'What the processes that share the store have reported instead'
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand stats" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand doctor" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand doctor" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand doctor" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand doctor" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand doctor" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l keys -d 'How many keys, 1 to 10 million' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l zipf -d 'How unequal keys are: 0 for equal, 1 for Zipf\'s law, up to 5' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l callers -d 'How many checks wait for their decision at a time, 1 to 10,000' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l rate -d 'Checks a second, at even times; without it each caller checks again at once' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l seconds -d 'How long to measure, 1 to 3,600' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand bench" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l policy -d 'The policy: quotas such as \'api=100/minute\', or with --policies the name of one in the document' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l candidate -d 'Other quotas to compare, such as \'api=100/minute token_bucket burst=20\'; may be given several times' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l traffic -d 'Generated clients, such as \'500 clients 2/s poisson zipf=1.1; bot: 1 client 50/s from=10m to=20m\'' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l for -d 'How long, such as 1h: by default one hour of generated traffic, or the whole log' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l seed -d 'The number from which all random numbers follow' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l start -d 'The time at which generated traffic starts; windows may be aligned to it, and rules may depend on it' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l log -d 'A log of a web server in place of --traffic; - is the standard input' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l format -d 'The format of the log: combined, vhost_combined, common, caddy, traefik, envoy, json, or variables of nginx such as \'$remote_addr [$time_local] "$request"\'' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l time -d 'The field of the time in a log of JSON, such as startedAt; by default the first of those that servers write' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l key -d 'Which clients the requests of a log belong to, by variables such as \'$remote_addr\' or \'$http_x_api_key\'' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l skip-malformed -d 'How many malformed lines of a log are left out before the simulation is refused' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l svg -d 'Write a picture of the requests over time, as SVG' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l png -d 'Write the same picture as PNG' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l html -d 'Write a page with everything in one file' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l no-plot -d 'Do not plot in the terminal'
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand simulate" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l listen -d 'Where callers ask: http://HOST:PORT, https://, unix:/PATH, resp://HOST:PORT, resps:// or resp+unix:/PATH; may be repeated' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l listen-open -d 'The same without tokens, for a Unix socket or loopback: where a proxy asks that hands on its clients\' Authorization; may be repeated' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l admin -d 'Where operators look, or `off`' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l admin-host -d 'A name of --admin, and of listeners for callers without tokens, besides their own and localhost; may be repeated' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l show-keys -d 'How operators see keys: plain, hash or off' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l tokens -d 'The file of callers: ROLE NAME sha256:DIGITS or ROLE NAME san:NAME in each line, with the roles check, read and admin' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l certificate -d 'The certificate of listeners with TLS, in PEM' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l key -d 'Its private key, in PEM' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l client-ca -d 'The authorities of clients\' certificates, in PEM' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l socket-mode -d 'The mode of the files of Unix sockets, octal' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l drain -d 'How long connections may go on once the server stops' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l max-connection-age -d 'How long a connection over HTTP may go on before its client is asked to make another one, 1s or more, or `off`' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l log-format -d 'How records of the log are written on standard error' -r -f -a "text\t''
json\t''"
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l log-level -d 'The least important records that are written: error, warn or info' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l trust -d 'A network of proxies that name the client\'s address, for forward authentication; may be repeated' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l client-header -d 'The header in which they name it: x-forwarded-for, forwarded, cf-connecting-ip, true-client-ip, x-real-ip or fly-client-ip' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l connections -d 'How many connections of callers at a time, 1 to 1 million' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l observe-keys -d 'How many keys are counted for the list of those that are denied most often, 0 to 65,536' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l report -d 'How often the other processes that share the store in Redis are told what this one counts, 1s to 1h, or `off`' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l insecure -d 'Listens beyond this host without TLS or without authentication, too'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l ready-needs-store -d 'Is ready only while the store answers'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l rls-count-all -d 'Every descriptor of Envoy counts for itself, also where another one denies the request'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l rls-overrides -d 'A limit that comes with a descriptor of Envoy is in place of that of the document'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand serve" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l within -d 'How long the answer may take' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l alive -d 'Asks only whether the process answers'
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand probe" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand completions" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand completions" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand completions" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand completions" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand completions" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand completions" -s h -l help -d 'Print help'
complete -c polylimit -n "__fish_polylimit_using_subcommand man" -l store -d 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file' -r
complete -c polylimit -n "__fish_polylimit_using_subcommand man" -l policies -d 'The file with the document of limits, TOML or JSON' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand man" -l audit-log -d 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason' -r -F
complete -c polylimit -n "__fish_polylimit_using_subcommand man" -l json -d 'Writes JSON: one object, or one in each line'
complete -c polylimit -n "__fish_polylimit_using_subcommand man" -l quiet -d 'Writes nothing but errors: the exit status is the answer'
complete -c polylimit -n "__fish_polylimit_using_subcommand man" -s h -l help -d 'Print help'
