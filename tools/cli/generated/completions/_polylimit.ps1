
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'polylimit' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'polylimit'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'polylimit' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Decides, and spends the cost when allowed')
            [CompletionResult]::new('peek', 'peek', [CompletionResultType]::ParameterValue, 'The decision that a check would give, without spending')
            [CompletionResult]::new('take', 'take', [CompletionResultType]::ParameterValue, 'Spends as much of the cost as is allowed')
            [CompletionResult]::new('charge', 'charge', [CompletionResultType]::ParameterValue, 'Spends the cost whether it fits or not')
            [CompletionResult]::new('refund', 'refund', [CompletionResultType]::ParameterValue, 'Gives back up to what is used')
            [CompletionResult]::new('reset', 'reset', [CompletionResultType]::ParameterValue, 'Forgets keys')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'Why a key would be allowed or denied, quota by quota, without spending')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Lists the keys of the store, with what is used of their quotas')
            [CompletionResult]::new('top', 'top', [CompletionResultType]::ParameterValue, 'The keys of which the most is used')
            [CompletionResult]::new('deny', 'deny', [CompletionResultType]::ParameterValue, 'Denies clients, attributes or keys, whatever their quotas say')
            [CompletionResult]::new('allow', 'allow', [CompletionResultType]::ParameterValue, 'Admits clients, attributes or keys, whatever their quotas say')
            [CompletionResult]::new('block', 'block', [CompletionResultType]::ParameterValue, 'Denies keys of a policy for a time')
            [CompletionResult]::new('policies', 'policies', [CompletionResultType]::ParameterValue, 'Reads and changes the document of limits')
            [CompletionResult]::new('stats', 'stats', [CompletionResultType]::ParameterValue, 'Counters of this process with the store, and the configuration in force')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Examines the store for settings that make limits unreliable')
            [CompletionResult]::new('bench', 'bench', [CompletionResultType]::ParameterValue, 'Measures how fast a store decides')
            [CompletionResult]::new('simulate', 'simulate', [CompletionResultType]::ParameterValue, 'Decides generated or logged requests by limits, without a store')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serves limits over HTTP and RESP')
            [CompletionResult]::new('probe', 'probe', [CompletionResultType]::ParameterValue, 'Asks a server whether it is ready, for health checks of containers')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Writes the completions for a shell')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Writes a manual page')
            break
        }
        'polylimit;check' {
            [CompletionResult]::new('--cost', '--cost', [CompletionResultType]::ParameterName, 'Units, up to 10^12')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;peek' {
            [CompletionResult]::new('--cost', '--cost', [CompletionResultType]::ParameterName, 'Units, up to 10^12')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;take' {
            [CompletionResult]::new('--cost', '--cost', [CompletionResultType]::ParameterName, 'Units, up to 10^12')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;charge' {
            [CompletionResult]::new('--cost', '--cost', [CompletionResultType]::ParameterName, 'Units, up to 10^12')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;refund' {
            [CompletionResult]::new('--cost', '--cost', [CompletionResultType]::ParameterName, 'Units, up to 10^12')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;reset' {
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'All keys that begin with this; they are counted, and a terminal is asked')
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Does not ask')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;explain' {
            [CompletionResult]::new('--cost', '--cost', [CompletionResultType]::ParameterName, 'Units, up to 10^12')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;list' {
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'What the keys begin with')
            [CompletionResult]::new('--used', '--used', [CompletionResultType]::ParameterName, 'Keys of which at least so much is used, in percent')
            [CompletionResult]::new('--most', '--most', [CompletionResultType]::ParameterName, 'How many keys, 1 or more')
            [CompletionResult]::new('--examine', '--examine', [CompletionResultType]::ParameterName, 'How many keys the store goes over at most, 1 or more')
            [CompletionResult]::new('--pace', '--pace', [CompletionResultType]::ParameterName, 'The share of a server''s time that this may take, 1 to 100')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--blocked', '--blocked', [CompletionResultType]::ParameterName, 'Blocked keys only')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;top' {
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'What the keys begin with')
            [CompletionResult]::new('--most', '--most', [CompletionResultType]::ParameterName, 'How many keys')
            [CompletionResult]::new('--examine', '--examine', [CompletionResultType]::ParameterName, 'How many keys the store goes over at most, 1 or more')
            [CompletionResult]::new('--pace', '--pace', [CompletionResultType]::ParameterName, 'The share of a server''s time that this may take, 1 to 100')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--denied', '--denied', [CompletionResultType]::ParameterName, 'The keys that the processes deny most often, as they report, without a look at the store''s keys')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;deny' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Adds an item')
            [CompletionResult]::new('remove', 'remove', [CompletionResultType]::ParameterValue, 'Removes an item')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Lists the items of the document and those that were added')
            break
        }
        'polylimit;deny;add' {
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'For how long, such as 15m, 1h or 30d; without it until it is removed')
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;deny;remove' {
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;deny;list' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;allow' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Adds an item')
            [CompletionResult]::new('remove', 'remove', [CompletionResultType]::ParameterValue, 'Removes an item')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Lists the items of the document and those that were added')
            break
        }
        'polylimit;allow;add' {
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'For how long, such as 15m, 1h or 30d; without it until it is removed')
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;allow;remove' {
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;allow;list' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;block' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Blocks a key')
            [CompletionResult]::new('remove', 'remove', [CompletionResultType]::ParameterValue, 'Ends the block of a key, and forgets what a penalty has counted')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'Lists the blocked keys, as `list --blocked` does')
            break
        }
        'polylimit;block;add' {
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'For how long, 1 ms to 366 days, such as 15m, 1h or 30d')
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;block;remove' {
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;block;list' {
            [CompletionResult]::new('--examine', '--examine', [CompletionResultType]::ParameterName, 'How many keys the store goes over at most, 1 or more')
            [CompletionResult]::new('--pace', '--pace', [CompletionResultType]::ParameterName, 'The share of a server''s time that this may take, 1 to 100')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('get', 'get', [CompletionResultType]::ParameterValue, 'Writes the document that is published in the store')
            [CompletionResult]::new('put', 'put', [CompletionResultType]::ParameterValue, 'Publishes a document in the store')
            [CompletionResult]::new('diff', 'diff', [CompletionResultType]::ParameterValue, 'Compares a document with the published one, or with another file')
            [CompletionResult]::new('validate', 'validate', [CompletionResultType]::ParameterValue, 'Checks documents')
            [CompletionResult]::new('history', 'history', [CompletionResultType]::ParameterValue, 'Lists the changes of documents and items in the store, the newest first')
            [CompletionResult]::new('rollback', 'rollback', [CompletionResultType]::ParameterValue, 'Publishes an earlier document again')
            [CompletionResult]::new('import', 'import', [CompletionResultType]::ParameterValue, 'Makes a document from limits of another program')
            break
        }
        'polylimit;policies;get' {
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'One of the last 32 documents; without it the newest')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies;put' {
            [CompletionResult]::new('--expect', '--expect', [CompletionResultType]::ParameterName, 'The version of the document that this one replaces; 0 for the first')
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies;diff' {
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'One of the last 32 published documents; without it the newest')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies;validate' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies;history' {
            [CompletionResult]::new('--most', '--most', [CompletionResultType]::ParameterName, 'How many changes')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies;rollback' {
            [CompletionResult]::new('--why', '--why', [CompletionResultType]::ParameterName, 'The reason, for the log')
            [CompletionResult]::new('--by', '--by', [CompletionResultType]::ParameterName, 'Name of the author, for the log')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;policies;import' {
            [CompletionResult]::new('--from', '--from', [CompletionResultType]::ParameterName, 'What the file is from')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'polylimit;stats' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--fleet', '--fleet', [CompletionResultType]::ParameterName, 'What the processes that share the store have reported instead')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;doctor' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;bench' {
            [CompletionResult]::new('--keys', '--keys', [CompletionResultType]::ParameterName, 'How many keys, 1 to 10 million')
            [CompletionResult]::new('--zipf', '--zipf', [CompletionResultType]::ParameterName, 'How unequal keys are: 0 for equal, 1 for Zipf''s law, up to 5')
            [CompletionResult]::new('--callers', '--callers', [CompletionResultType]::ParameterName, 'How many checks wait for their decision at a time, 1 to 10,000')
            [CompletionResult]::new('--rate', '--rate', [CompletionResultType]::ParameterName, 'Checks a second, at even times; without it each caller checks again at once')
            [CompletionResult]::new('--seconds', '--seconds', [CompletionResultType]::ParameterName, 'How long to measure, 1 to 3,600')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;simulate' {
            [CompletionResult]::new('--policy', '--policy', [CompletionResultType]::ParameterName, 'The policy: quotas such as ''api=100/minute'', or with --policies the name of one in the document')
            [CompletionResult]::new('--candidate', '--candidate', [CompletionResultType]::ParameterName, 'Other quotas to compare, such as ''api=100/minute token_bucket burst=20''; may be given several times')
            [CompletionResult]::new('--traffic', '--traffic', [CompletionResultType]::ParameterName, 'Generated clients, such as ''500 clients 2/s poisson zipf=1.1; bot: 1 client 50/s from=10m to=20m''')
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'How long, such as 1h: by default one hour of generated traffic, or the whole log')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'The number from which all random numbers follow')
            [CompletionResult]::new('--start', '--start', [CompletionResultType]::ParameterName, 'The time at which generated traffic starts; windows may be aligned to it, and rules may depend on it')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'A log of a web server in place of --traffic; - is the standard input')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'The format of the log: combined, vhost_combined, common, caddy, traefik, envoy, json, or variables of nginx such as ''$remote_addr [$time_local] "$request"''')
            [CompletionResult]::new('--time', '--time', [CompletionResultType]::ParameterName, 'The field of the time in a log of JSON, such as startedAt; by default the first of those that servers write')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'Which clients the requests of a log belong to, by variables such as ''$remote_addr'' or ''$http_x_api_key''')
            [CompletionResult]::new('--skip-malformed', '--skip-malformed', [CompletionResultType]::ParameterName, 'How many malformed lines of a log are left out before the simulation is refused')
            [CompletionResult]::new('--svg', '--svg', [CompletionResultType]::ParameterName, 'Write a picture of the requests over time, as SVG')
            [CompletionResult]::new('--png', '--png', [CompletionResultType]::ParameterName, 'Write the same picture as PNG')
            [CompletionResult]::new('--html', '--html', [CompletionResultType]::ParameterName, 'Write a page with everything in one file')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--no-plot', '--no-plot', [CompletionResultType]::ParameterName, 'Do not plot in the terminal')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;serve' {
            [CompletionResult]::new('--listen', '--listen', [CompletionResultType]::ParameterName, 'Where callers ask: http://HOST:PORT, https://, unix:/PATH, resp://HOST:PORT, resps:// or resp+unix:/PATH; may be repeated')
            [CompletionResult]::new('--listen-open', '--listen-open', [CompletionResultType]::ParameterName, 'The same without tokens, for a Unix socket or loopback: where a proxy asks that hands on its clients'' Authorization; may be repeated')
            [CompletionResult]::new('--admin', '--admin', [CompletionResultType]::ParameterName, 'Where operators look, or `off`')
            [CompletionResult]::new('--admin-host', '--admin-host', [CompletionResultType]::ParameterName, 'A name of --admin, and of listeners for callers without tokens, besides their own and localhost; may be repeated')
            [CompletionResult]::new('--show-keys', '--show-keys', [CompletionResultType]::ParameterName, 'How operators see keys: plain, hash or off')
            [CompletionResult]::new('--tokens', '--tokens', [CompletionResultType]::ParameterName, 'The file of callers: ROLE NAME sha256:DIGITS or ROLE NAME san:NAME in each line, with the roles check, read and admin')
            [CompletionResult]::new('--certificate', '--certificate', [CompletionResultType]::ParameterName, 'The certificate of listeners with TLS, in PEM')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'Its private key, in PEM')
            [CompletionResult]::new('--client-ca', '--client-ca', [CompletionResultType]::ParameterName, 'The authorities of clients'' certificates, in PEM')
            [CompletionResult]::new('--socket-mode', '--socket-mode', [CompletionResultType]::ParameterName, 'The mode of the files of Unix sockets, octal')
            [CompletionResult]::new('--drain', '--drain', [CompletionResultType]::ParameterName, 'How long connections may go on once the server stops')
            [CompletionResult]::new('--max-connection-age', '--max-connection-age', [CompletionResultType]::ParameterName, 'How long a connection over HTTP may go on before its client is asked to make another one, 1s or more, or `off`')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How records of the log are written on standard error')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'The least important records that are written: error, warn or info')
            [CompletionResult]::new('--trust', '--trust', [CompletionResultType]::ParameterName, 'A network of proxies that name the client''s address, for forward authentication; may be repeated')
            [CompletionResult]::new('--client-header', '--client-header', [CompletionResultType]::ParameterName, 'The header in which they name it: x-forwarded-for, forwarded, cf-connecting-ip, true-client-ip, x-real-ip or fly-client-ip')
            [CompletionResult]::new('--connections', '--connections', [CompletionResultType]::ParameterName, 'How many connections of callers at a time, 1 to 1 million')
            [CompletionResult]::new('--observe-keys', '--observe-keys', [CompletionResultType]::ParameterName, 'How many keys are counted for the list of those that are denied most often, 0 to 65,536')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'How often the other processes that share the store in Redis are told what this one counts, 1s to 1h, or `off`')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--insecure', '--insecure', [CompletionResultType]::ParameterName, 'Listens beyond this host without TLS or without authentication, too')
            [CompletionResult]::new('--ready-needs-store', '--ready-needs-store', [CompletionResultType]::ParameterName, 'Is ready only while the store answers')
            [CompletionResult]::new('--rls-count-all', '--rls-count-all', [CompletionResultType]::ParameterName, 'Every descriptor of Envoy counts for itself, also where another one denies the request')
            [CompletionResult]::new('--rls-overrides', '--rls-overrides', [CompletionResultType]::ParameterName, 'A limit that comes with a descriptor of Envoy is in place of that of the document')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;probe' {
            [CompletionResult]::new('--within', '--within', [CompletionResultType]::ParameterName, 'How long the answer may take')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--alive', '--alive', [CompletionResultType]::ParameterName, 'Asks only whether the process answers')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;completions' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'polylimit;man' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file')
            [CompletionResult]::new('--policies', '--policies', [CompletionResultType]::ParameterName, 'The file with the document of limits, TOML or JSON')
            [CompletionResult]::new('--audit-log', '--audit-log', [CompletionResultType]::ParameterName, 'The file that gets a line for each key that `reset` and `block` change, with the user and the reason')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Writes JSON: one object, or one in each line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Writes nothing but errors: the exit status is the answer')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
