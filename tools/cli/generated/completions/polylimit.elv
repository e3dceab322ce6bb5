
use builtin;
use str;

set edit:completion:arg-completer[polylimit] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'polylimit'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'polylimit'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
            cand -V 'Print version'
            cand --version 'Print version'
            cand check 'Decides, and spends the cost when allowed'
            cand peek 'The decision that a check would give, without spending'
            cand take 'Spends as much of the cost as is allowed'
            cand charge 'Spends the cost whether it fits or not'
            cand refund 'Gives back up to what is used'
            cand reset 'Forgets keys'
            cand explain 'Why a key would be allowed or denied, quota by quota, without spending'
            cand list 'Lists the keys of the store, with what is used of their quotas'
            cand top 'The keys of which the most is used'
            cand deny 'Denies clients, attributes or keys, whatever their quotas say'
            cand allow 'Admits clients, attributes or keys, whatever their quotas say'
            cand block 'Denies keys of a policy for a time'
            cand policies 'Reads and changes the document of limits'
            cand stats 'Counters of this process with the store, and the configuration in force'
            cand doctor 'Examines the store for settings that make limits unreliable'
            cand bench 'Measures how fast a store decides'
            cand simulate 'Decides generated or logged requests by limits, without a store'
            cand serve 'Serves limits over HTTP and RESP'
            cand probe 'Asks a server whether it is ready, for health checks of containers'
            cand completions 'Writes the completions for a shell'
            cand man 'Writes a manual page'
        }
        &'polylimit;check'= {
            cand --cost 'Units, up to 10^12'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;peek'= {
            cand --cost 'Units, up to 10^12'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;take'= {
            cand --cost 'Units, up to 10^12'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;charge'= {
            cand --cost 'Units, up to 10^12'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;refund'= {
            cand --cost 'Units, up to 10^12'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;reset'= {
            cand --prefix 'All keys that begin with this; they are counted, and a terminal is asked'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --yes 'Does not ask'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;explain'= {
            cand --cost 'Units, up to 10^12'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;list'= {
            cand --prefix 'What the keys begin with'
            cand --used 'Keys of which at least so much is used, in percent'
            cand --most 'How many keys, 1 or more'
            cand --examine 'How many keys the store goes over at most, 1 or more'
            cand --pace 'The share of a server''s time that this may take, 1 to 100'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --blocked 'Blocked keys only'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;top'= {
            cand --prefix 'What the keys begin with'
            cand --most 'How many keys'
            cand --examine 'How many keys the store goes over at most, 1 or more'
            cand --pace 'The share of a server''s time that this may take, 1 to 100'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --denied 'The keys that the processes deny most often, as they report, without a look at the store''s keys'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;deny'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
            cand add 'Adds an item'
            cand remove 'Removes an item'
            cand list 'Lists the items of the document and those that were added'
        }
        &'polylimit;deny;add'= {
            cand --for 'For how long, such as 15m, 1h or 30d; without it until it is removed'
            cand --why 'The reason, for the log'
            cand --by 'Name of the author, for the log'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;deny;remove'= {
            cand --why 'The reason, for the log'
            cand --by 'Name of the author, for the log'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;deny;list'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;allow'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
            cand add 'Adds an item'
            cand remove 'Removes an item'
            cand list 'Lists the items of the document and those that were added'
        }
        &'polylimit;allow;add'= {
            cand --for 'For how long, such as 15m, 1h or 30d; without it until it is removed'
            cand --why 'The reason, for the log'
            cand --by 'Name of the author, for the log'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;allow;remove'= {
            cand --why 'The reason, for the log'
            cand --by 'Name of the author, for the log'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;allow;list'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;block'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
            cand add 'Blocks a key'
            cand remove 'Ends the block of a key, and forgets what a penalty has counted'
            cand list 'Lists the blocked keys, as `list --blocked` does'
        }
        &'polylimit;block;add'= {
            cand --for 'For how long, 1 ms to 366 days, such as 15m, 1h or 30d'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;block;remove'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;block;list'= {
            cand --examine 'How many keys the store goes over at most, 1 or more'
            cand --pace 'The share of a server''s time that this may take, 1 to 100'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
            cand get 'Writes the document that is published in the store'
            cand put 'Publishes a document in the store'
            cand diff 'Compares a document with the published one, or with another file'
            cand validate 'Checks documents'
            cand history 'Lists the changes of documents and items in the store, the newest first'
            cand rollback 'Publishes an earlier document again'
            cand import 'Makes a document from limits of another program'
        }
        &'polylimit;policies;get'= {
            cand --version 'One of the last 32 documents; without it the newest'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies;put'= {
            cand --expect 'The version of the document that this one replaces; 0 for the first'
            cand --why 'The reason, for the log'
            cand --by 'Name of the author, for the log'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies;diff'= {
            cand --version 'One of the last 32 published documents; without it the newest'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies;validate'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies;history'= {
            cand --most 'How many changes'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies;rollback'= {
            cand --why 'The reason, for the log'
            cand --by 'Name of the author, for the log'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;policies;import'= {
            cand --from 'What the file is from'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'polylimit;stats'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --fleet 'What the processes that share the store have reported instead'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;doctor'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;bench'= {
            cand --keys 'How many keys, 1 to 10 million'
            cand --zipf 'How unequal keys are: 0 for equal, 1 for Zipf''s law, up to 5'
            cand --callers 'How many checks wait for their decision at a time, 1 to 10,000'
            cand --rate 'Checks a second, at even times; without it each caller checks again at once'
            cand --seconds 'How long to measure, 1 to 3,600'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;simulate'= {
            cand --policy 'The policy: quotas such as ''api=100/minute'', or with --policies the name of one in the document'
            cand --candidate 'Other quotas to compare, such as ''api=100/minute token_bucket burst=20''; may be given several times'
            cand --traffic 'Generated clients, such as ''500 clients 2/s poisson zipf=1.1; bot: 1 client 50/s from=10m to=20m'''
            cand --for 'How long, such as 1h: by default one hour of generated traffic, or the whole log'
            cand --seed 'The number from which all random numbers follow'
            cand --start 'The time at which generated traffic starts; windows may be aligned to it, and rules may depend on it'
            cand --log 'A log of a web server in place of --traffic; - is the standard input'
            cand --format 'The format of the log: combined, vhost_combined, common, caddy, traefik, envoy, json, or variables of nginx such as ''$remote_addr [$time_local] "$request"'''
            cand --time 'The field of the time in a log of JSON, such as startedAt; by default the first of those that servers write'
            cand --key 'Which clients the requests of a log belong to, by variables such as ''$remote_addr'' or ''$http_x_api_key'''
            cand --skip-malformed 'How many malformed lines of a log are left out before the simulation is refused'
            cand --svg 'Write a picture of the requests over time, as SVG'
            cand --png 'Write the same picture as PNG'
            cand --html 'Write a page with everything in one file'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --no-plot 'Do not plot in the terminal'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;serve'= {
            cand --listen 'Where callers ask: http://HOST:PORT, https://, unix:/PATH, resp://HOST:PORT, resps:// or resp+unix:/PATH; may be repeated'
            cand --listen-open 'The same without tokens, for a Unix socket or loopback: where a proxy asks that hands on its clients'' Authorization; may be repeated'
            cand --admin 'Where operators look, or `off`'
            cand --admin-host 'A name of --admin, and of listeners for callers without tokens, besides their own and localhost; may be repeated'
            cand --show-keys 'How operators see keys: plain, hash or off'
            cand --tokens 'The file of callers: ROLE NAME sha256:DIGITS or ROLE NAME san:NAME in each line, with the roles check, read and admin'
            cand --certificate 'The certificate of listeners with TLS, in PEM'
            cand --key 'Its private key, in PEM'
            cand --client-ca 'The authorities of clients'' certificates, in PEM'
            cand --socket-mode 'The mode of the files of Unix sockets, octal'
            cand --drain 'How long connections may go on once the server stops'
            cand --max-connection-age 'How long a connection over HTTP may go on before its client is asked to make another one, 1s or more, or `off`'
            cand --log-format 'How records of the log are written on standard error'
            cand --log-level 'The least important records that are written: error, warn or info'
            cand --trust 'A network of proxies that name the client''s address, for forward authentication; may be repeated'
            cand --client-header 'The header in which they name it: x-forwarded-for, forwarded, cf-connecting-ip, true-client-ip, x-real-ip or fly-client-ip'
            cand --connections 'How many connections of callers at a time, 1 to 1 million'
            cand --observe-keys 'How many keys are counted for the list of those that are denied most often, 0 to 65,536'
            cand --report 'How often the other processes that share the store in Redis are told what this one counts, 1s to 1h, or `off`'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --insecure 'Listens beyond this host without TLS or without authentication, too'
            cand --ready-needs-store 'Is ready only while the store answers'
            cand --rls-count-all 'Every descriptor of Envoy counts for itself, also where another one denies the request'
            cand --rls-overrides 'A limit that comes with a descriptor of Envoy is in place of that of the document'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;probe'= {
            cand --within 'How long the answer may take'
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --alive 'Asks only whether the process answers'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;completions'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'polylimit;man'= {
            cand --store 'The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file'
            cand --policies 'The file with the document of limits, TOML or JSON'
            cand --json 'Writes JSON: one object, or one in each line'
            cand --quiet 'Writes nothing but errors: the exit status is the answer'
            cand -h 'Print help'
            cand --help 'Print help'
        }
    ]
    $completions[$command]
}
