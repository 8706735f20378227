import type { AUDIT_KEYS, MCP_KEYS, SERVER_KEYS } from '../../src/config/rexd-config.ts'
import { type SettingKey, SETTING_KEYS, SETTINGS, readConfig } from '../../src/config/config.ts'
import { DEFAULT_LOCAL_LIMITS } from '../../src/policy/local/policy.ts'
import type { SECURITY_KEYS } from '../../src/policy/local/read-policy.ts'
import { DEFAULT_SETTINGS, type ExecSettings } from '../../src/policy/modes.ts'
import { DEFAULT_SANDBOX, type SandboxSettings } from '../../src/policy/sandbox/sandbox-settings.ts'
import type { LimitName } from '../../src/protocol/rexd/fields.ts'
import { code, table } from './table.ts'

/** Text of a key; `fallback` where the default depends on the instance or the machine. */
type KeyText = string | readonly [text: string, fallback: string]

const textOf = (text: KeyText): string => (typeof text === 'string' ? text : text[0])

const valueText = (value: unknown): string => (value === null ? 'none' : code(JSON.stringify(value)))

const defaultText = (text: KeyText, value: unknown): string => (typeof text === 'string' ? valueText(value) : text[1])

const SETTING_TEXTS: Readonly<Record<SettingKey, KeyText>> = {
  display_name: ['Name in the card of this agent. Other agents see it. It proves nothing.', 'the name of the daemon, else the host name'],
  exec_acl: [
    'The [ACL](acl.md). If the default file is missing, nobody can run commands. If you name a file that is missing, the daemon does not start.',
    '`/etc/x0x/exec-acl.toml`; macOS `/usr/local/etc/x0x/exec-acl.toml`; with a name: in the data directory',
  ],
  acl_signers:
    'Agents that sign the ACL ([fleet-acls.md](fleet-acls.md)). The daemon then uses only an ACL that one of them signed, and none with an older version than the last one.',
  api_port: ['Port of the API on 127.0.0.1. 0 means any free port; the file `api.port` contains it.', '`12700`; with a name `0`'],
  listen: ['Addresses where peers connect.', '`["/ip4/0.0.0.0/tcp/5483"]`; with a name port 0'],
  announce: 'More addresses to publish, such as that of a port forward.',
  bootstrap:
    'Peers to dial at the start. Each address ends in `/p2p/…`, as `x0x id` prints it. The daemon refuses addresses that it can never dial.',
  keep: 'IDs of contacts that always keep a connection, also in a [large mesh](large-meshes.md).',
  relay: 'Relay connections between contacts of level `known` or `trusted` ([nat.md](nat.md)).',
  relays:
    'Relays that make this daemon reachable, each ending in `/p2p/…`. If the list is empty and no direct path is known, it uses contacts that relay.',
  dht: 'Use of the [DHT](connections.md): `off`, `client` (publish and look up cards) or `server` (also store cards of others). `auto` means `off` without `bootstrap`, `server` with `bootstrap` and `announce`, else `client`.',
  mdns: 'Find peers on the local network.',
  strangers:
    'Accept unlisted peers. With `false`, only machines connect that a contact, the ACL or `bootstrap` names. A bootstrap peer needs `true` if new machines use it.',
  network_user: [
    'User of the [network process](architecture.md) if root starts `x0xd`. It must not be able to read the keys. `root` removes this protection, with a warning. If another user starts `x0xd`, you can set only that user.',
    '`x0x`; without that user a spare number from 60578 to 61183',
  ],
  share_with_group:
    'Let the group of a system daemon use it: directory 0750, socket 0660, tokens and `operator.key` 0640. Existing files are changed at the start.',
  require_operator_proof:
    'Require a proof by `operator.key` for each run on other agents. `x0x exec` makes it. The bearer token alone then runs nothing.',
  ask_timeout:
    'Seconds in which approvers must decide, from 1 to 1800. No answer is a denial. If `x0x desk` hosts the approval service, its option applies.',
  drain_timeout:
    'Seconds that runs may go on after SIGTERM, while new ones are refused ([upgrade.md](upgrade.md#restart-without-losing-runs)). With 0, they end at once. At most 86400.',
  rexd_config: 'Serve [REXD](rexd.md) with this [configuration](#rexd). If it is not valid, the daemon does not start.',
  syslog: 'Datagram socket, such as `/dev/log`, for a [copy](monitor.md) of each log line. Needs `/usr/bin/perl`.',
  otlp: 'Collector on this machine for [traces](monitor.md), such as `http://127.0.0.1:4318/v1/traces`.',
  metrics_token: 'Make a token, `metrics-token`, that only opens [`GET /metrics`](monitor.md).',
  containment: 'Mechanism that [holds the processes of a run](#containment): `auto`, `cgroup`, `pid_namespace` or `group`.',
  log_level: '`debug`, `info`, `warn` or `error`; JSON lines on standard error.',
}

/** Settings of `config.toml`. */
export const settings = async (): Promise<string> => {
  const { config } = await readConfig({ name: null, config: null, dataDir: '/nonexistent', executorSocket: null, settings: {} }, {})
  return table(
    ['key', 'default', 'flag', 'meaning'],
    SETTING_KEYS.map((key) => {
      const { flag } = SETTINGS[key]
      const text = SETTING_TEXTS[key]
      return [code(key), defaultText(text, config[key]), flag === null ? '' : code(`--${flag}`), textOf(text)]
    }),
  )
}

const MODE_TEXTS: Readonly<Record<keyof ExecSettings | 'allowed_hosts' | 'always_ask', KeyText>> = {
  host: 'Where commands run: `sandbox`, `gateway` (this machine) or `node` (another agent).',
  security: ['Which commands may run: `deny`, `allowlist` or `full`, within `[security]`.', '`"deny"`; in a sandbox `"full"`'],
  ask: 'When an approver must decide: `off`, `on-miss` or `always`.',
  ask_fallback: 'Decision without an approver: `deny`, `allowlist` or `full`.',
  node: 'The agent for `host = "node"`. Without it, each call names one.',
  allowed_hosts: ['Hosts that a call may choose. `host` is always allowed.', '`host` and `sandbox`'],
  always_ask: [
    'Commands that always need approval, with a `reason` for the approver. If set, opaque commands without a grant also need it.',
    'none',
  ],
}

const SANDBOX_TEXTS: Readonly<Record<keyof SandboxSettings, KeyText>> = {
  engine: '`bubblewrap`; or `podman` or `docker`, which show the files of an image.',
  image: 'Image for `podman` and `docker`, with a tag or digest. x0x looks up a tag for each run.',
  network: 'Share the network of this machine, and Unix sockets.',
  unix_sockets: 'Allow Unix sockets without the network.',
  readable: 'More directories that commands can read.',
  max_memory_bytes: 'Memory of all processes of a run. If x0x cannot enforce it, nothing runs.',
  max_processes: ['Processes and threads of a run. If you set it and x0x cannot enforce it, nothing runs.', '`1024` with control groups'],
}

const keyRows = <K extends string>(
  prefix: string,
  texts: Readonly<Record<K, KeyText>>,
  defaults: Readonly<Partial<Record<K, unknown>>>,
): string[][] =>
  (Object.keys(texts) as K[]).map((key) => [code(`${prefix}${key}`), defaultText(texts[key], defaults[key] ?? null), textOf(texts[key])])

const KEY_HEADER = ['key', 'default', 'meaning']

/** Keys of `[tools.exec]` and `[tools.exec.sandbox]`. */
export const toolSettings = (): string =>
  table(KEY_HEADER, [...keyRows('', MODE_TEXTS, DEFAULT_SETTINGS), ...keyRows('sandbox.', SANDBOX_TEXTS, DEFAULT_SANDBOX)])

const SERVER_TEXTS: Readonly<Record<(typeof SERVER_KEYS)[number], KeyText>> = {
  stdio: ['Allow `rexd --stdio`.', '`true`'],
  log_level: ['`debug`, `info`, `warn` or `error`; JSON lines on standard error.', '`"warn"`'],
  http_listen: 'Address for `rexd --http`: `"127.0.0.1:7680"`, or `"unix:/run/rexd/rexd.sock"`.',
  http_wildcard: ['Confirm that `0.0.0.0` or `::` is intended.', '`false`'],
  token_file: ['File of the token. The first start makes it.', 'required with `http_listen`'],
  allowed_hosts: ['More names for the header `Host`.', '`[]`'],
  allowed_origins: ['Web pages that may call.', '`[]`'],
  tls_cert: 'PEM file of the certificate.',
  tls_key: 'PEM file of its key.',
  tls_client_ca: 'PEM file. Clients must have a certificate of this authority.',
}

const LIMIT_TEXTS: Readonly<Record<LimitName, KeyText>> = {
  default_timeout_ms: 'Timeout of a command without its own.',
  hard_timeout_ms: 'Longest timeout.',
  max_output_bytes: 'Output of one process, both streams together.',
  max_file_read_bytes: 'Size of one `fs.read`, at most 2097152.',
  max_processes_per_session: 'Running processes, at most 1024.',
  max_concurrent_sessions: 'Open sessions, at most 1024.',
  max_detached_processes: 'Detached processes of all sessions, at most 1024.',
  max_detached_ms: 'Longest and default duration of a detached process.',
}

const SECURITY_TEXTS: Readonly<Record<(typeof SECURITY_KEYS)[number], KeyText>> = {
  allowed_roots: ['`[[security.allowed_roots]]`, each with an absolute `path` of a directory.', 'required'],
  allow_write: ['Allow `fs.write`, `fs.edit` and `fs.patch`.', '`true`'],
  allow_shell: ['Allow `shell: true`.', '`false`'],
  allow_pty: ['Allow terminals. Needs the package `@lydell/node-pty`.', '`false`'],
  allow_detach: ['Allow detached commands: over HTTP and WebSocket, and in `x0x mcp` for a target.', '`false`'],
  allow_targets: ['Agents for which a client may open a session; `"*"` means any.', '`[]`'],
  targets_as_operator: [
    'Send requests to these agents with the proof of `operator.key`. Needed with `require_operator_proof`. Every client then acts as the operator.',
    '`false`',
  ],
  allow_commands: ['`[[security.allow_commands]]` with `argv`, and `args = "any"` for any further arguments.', 'all that are not denied'],
  deny_commands: ['The same format. REXD checks it first.', 'none'],
  allow_env: ['Variables that a client may set. REXD refuses names known to load code, such as `LD_*` and `PATH`.', '`[]`'],
  pass_env: ['Variables of `rexd` that every command gets.', '`[]`'],
  path: ['Absolute directories of programs; also `PATH` of commands.', '`/usr/local/sbin:` … `:/bin`'],
}

const MCP_TEXTS: Readonly<Record<(typeof MCP_KEYS)[number], KeyText>> = {
  answer_within_ms: ['Time within which a tool of `x0x mcp` answers.', '`45000`'],
}

const AUDIT_TEXTS: Readonly<Record<(typeof AUDIT_KEYS)[number], KeyText>> = {
  enabled: ['Write an audit log. `false` causes a warning.', '`true`'],
  path: ['Absolute path. Only root and this user may be able to write its directories.', '`"/var/lib/rexd/audit.log"`'],
}

/** Keys of the configuration of `rexd` and `x0x mcp`, except `[tools.exec]` and `[[agents.list]]`. */
export const rexdSettings = (): string =>
  table(KEY_HEADER, [
    ...keyRows('server.', SERVER_TEXTS, {}),
    ...keyRows('limits.', LIMIT_TEXTS, DEFAULT_LOCAL_LIMITS),
    ...keyRows('security.', SECURITY_TEXTS, {}),
    ...keyRows('mcp.', MCP_TEXTS, {}),
    ...keyRows('audit.', AUDIT_TEXTS, {}),
  ])
