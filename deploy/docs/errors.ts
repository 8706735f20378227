import { ERROR_TABLE, type ErrorCode } from '../../src/base/errors.ts'
import { DENIAL_REASONS, type DenialReason, WARNING_KINDS, type WarningKind } from '../../src/protocol/reasons.ts'
import { code, table } from './table.ts'

/** Headings of the tables of errors, in the order of the page. */
const GROUPS = [
  'Invalid calls',
  'Access to the API',
  'Configuration and data files',
  'Agents and connections',
  'Runs and commands',
  'Approvals',
  'REXD sessions and files',
  'The daemon',
] as const

/** The group of an error, why it happens, and what the reader does about it. */
type ErrorText = readonly [group: (typeof GROUPS)[number], cause: string, remedy: string]

const ERRORS: Readonly<Record<ErrorCode, ErrorText>> = {
  bad_request: [
    'Invalid calls',
    'A flag, a field or the body is not valid. The message names it.',
    'Correct it. x0x rejects unknown fields.',
  ],
  malformed: [
    'Invalid calls',
    'The bytes are not an x0x message: wrong format, too long or nested too deeply.',
    'Compare the versions of both sides. Ignore messages of unlisted peers.',
  ],
  not_found: ['Invalid calls', 'This route or file does not exist.', 'Check the spelling. `x0x routes` lists the routes.'],
  method_not_allowed: [
    'Invalid calls',
    'The route exists with another method. The message and the header `Allow` name it.',
    'Use that method.',
  ],
  conflict: [
    'Invalid calls',
    'The current state does not allow the call, such as a request ID in use.',
    'Read the message, check the state, and try again.',
  ],
  too_large: [
    'Invalid calls',
    'The request body is too large, or the answer is too large to send at once.',
    'Stream it: `--stdin-file -`, or `Accept: application/x-ndjson`.',
  ],
  rate_limited: [
    'Invalid calls',
    'Too many requests or signatures in a short time. See [limits.md](limits.md).',
    'Wait, then send fewer requests.',
  ],
  unauthorized: [
    'Access to the API',
    'The bearer token is missing or wrong.',
    'Use the content of `api-token` in the data directory (REXD: of `token_file`). It changes with `x0x keys rotate-token`. Check `--name` and `--data-dir`.',
  ],
  operator_proof_required: [
    'Access to the API',
    'The call has no fresh proof by `operator.key`. Changes of trust need one, and calls that show or end incoming runs. With `require_operator_proof`, every run needs one.',
    'Use `x0x` as the user who owns the data directory. Check the clock of this machine.',
  ],
  forbidden_host: [
    'Access to the API',
    'The header `Host` or `Origin` is not allowed. A web page may be calling.',
    'Call `127.0.0.1` with its port, or the Unix socket as `http://localhost`. For REXD, set `allowed_hosts` and `allowed_origins`.',
  ],
  bad_config: [
    'Configuration and data files',
    '`config.toml`, an environment variable or a combination of flags is not valid.',
    'Correct the place that the message names. `x0xd --check` lists all problems.',
  ],
  bad_acl: [
    'Configuration and data files',
    'The ACL file is not valid, or you named a file that does not exist.',
    'Correct each `file:line: key`. Test the file with `x0x acl check FILE`.',
  ],
  bad_groups: [
    'Configuration and data files',
    '`groups.toml` is not valid, is writable by others, names an unknown group, or contains a group that includes itself.',
    'Correct the line that the message names. `x0xd --check` lists all problems.',
  ],
  bad_contacts: [
    'Configuration and data files',
    '`contacts.json` is damaged. The daemon does not start, because it would forget which agents you blocked.',
    'Restore the file from a backup, or correct the place that the message names.',
  ],
  bad_revocations: [
    'Configuration and data files',
    '`revocations.json` is damaged, or contains a statement that its agent did not sign. The daemon does not start, because it would forget a revocation.',
    'Restore the file from a backup.',
  ],
  bad_successions: [
    'Configuration and data files',
    '`successions.json` is damaged, or contains a statement that its two keys did not sign.',
    'Restore the file from a backup. Without it, contacts that missed a new key do not follow it.',
  ],
  bad_runs: [
    'Configuration and data files',
    '`detached-runs.json` is damaged, comes from a later version, or cannot be written. The daemon starts no detached run. Everything else works.',
    'Free disk space, fix the permissions, or move the file away. The runs continue; `x0x audit tail --outgoing` shows their IDs.',
  ],
  bad_approvals: [
    'Configuration and data files',
    '`exec-approvals.json` is not valid, is writable by others, is a link, or belongs to another user. x0x then denies each run that needs it.',
    'Fix the place that the message names, or move the file away for a new one.',
  ],
  bad_key_file: [
    'Configuration and data files',
    'A key file or token file does not contain a key or token.',
    'Restore `agent.key` and `machine.key` from a backup. Without them, the daemon makes a new identity. Delete `operator.key` or a token; the next start makes a new one.',
  ],
  loose_permissions: [
    'Configuration and data files',
    'Other users can read a secret, or can write a file that grants permissions.',
    'Run the `chmod` or `chown` at the end of the message.',
  ],
  journal_unavailable: [
    'Configuration and data files',
    'A log cannot be written: the disk is almost full or read-only, or the directory is missing. Nothing ran.',
    'Make the file that the message names writable. No restart is needed.',
  ],
  unknown_agent: [
    'Agents and connections',
    'No contact or discovered agent has that name, ID or prefix. For a fan-out: no such label or group exists.',
    'Run `x0x contacts list` and `x0x peers`. Import the card with `x0x contacts import LINK`.',
  ],
  ambiguous_agent: ['Agents and connections', 'The name or prefix matches several agents. The message lists them.', 'Type more of the ID.'],
  no_hosts: [
    'Agents and connections',
    'The selection contains no hosts: the group is empty, or every host is excluded.',
    'Run `x0x contacts select WHO...` to see the selection ([fleets.md](fleets.md)).',
  ],
  bad_card: [
    'Agents and connections',
    'An agent card is cut off, changed, expired or signed by another key, or none of its addresses can be dialled.',
    'Ask its owner for a new one (`x0x card`), and copy the whole link.',
  ],
  bad_enrolment: [
    'Agents and connections',
    'An enrolment token is cut off, changed or from another version, or `enrol-keys.json` or `enrolment.json` is damaged.',
    'Copy the whole token, or create another one with `x0x enrol create`. Restore the file from a backup.',
  ],
  enrolment_refused: [
    'Agents and connections',
    'The operator did not enrol this machine, or was not reached before the token expired. The message says why ([enrol.md](enrol.md#refusals)).',
    'On the machine of the operator, run `x0x enrol list`, and create another key. Then run `x0xd --init --enrol TOKEN` again.',
  ],
  peer_unreachable: [
    'Agents and connections',
    'No address of the agent answered. The message lists the addresses that were tried.',
    'Start its daemon, open its port, or import a card with its current addresses.',
  ],
  peer_rejected: [
    'Agents and connections',
    'The agent blocked this agent or pinned it to another machine, or your own contacts reject that agent. Or it did not say which commands it allows.',
    'Follow the `Try:` line. On the machine that refused, `x0x trust evaluate AGENT MACHINE` explains the decision.',
  ],
  upgrade: [
    'Agents and connections',
    'The two machines run releases that cannot work together. The message names both link versions.',
    'Upgrade x0x on the machine that the message names, and restart its `x0xd`.',
  ],
  timeout: [
    'Agents and connections',
    'The time for this step has passed. The outcome is unknown.',
    'Run `x0x audit tail` on the target to see what happened. Then try again with more time.',
  ],
  unknown_run: [
    'Runs and commands',
    'No active run has that ID.',
    'Run `x0x exec sessions`; add `--incoming` for runs of other agents on this machine. `x0x events` shows ended runs.',
  ],
  command_denied: [
    'Runs and commands',
    'The configuration does not allow the command or variable (`data` names the rule), or the ACL of the target does not (`data.reason`).',
    'Ask the owner of the REXD configuration, or of the target, to allow it.',
  ],
  output_limit_exceeded: [
    'Runs and commands',
    'The command wrote more than `max_output_bytes`, and `fail_on_limit` was set. x0x ended it.',
    'Ask for less output, or raise the limit up to that of the server.',
  ],
  sandbox_unavailable: [
    'Runs and commands',
    'Bubblewrap, user namespaces or the image is missing, or a configured limit cannot be enforced. Nothing ran.',
    'Get the package, `sysctl` or image that the message names.',
  ],
  approval_denied: ['Approvals', 'An approver refused the run.', 'Ask the approver. `x0x approvals history` names them.'],
  approval_timeout: ['Approvals', 'No approver answered in time.', 'Try again when an approver is connected.'],
  approval_unavailable: [
    'Approvals',
    'The run needs approval, but the approval service, an approver or a valid answer is missing.',
    'Start `x0xd` or `x0x desk`, then `x0x approvals watch` or `x0x ui`.',
  ],
  approval_mismatch: [
    'Approvals',
    'The command, its files or its environment changed after the approval, or the approval was already used.',
    'Run it again, for a new approval.',
  ],
  unknown_session: [
    'REXD sessions and files',
    'This connection has no session with that ID. It was closed, or belongs to another client.',
    'Call `session.open`, or `session.resume` with the token of the session.',
  ],
  unknown_process: [
    'REXD sessions and files',
    'This session has no process with that ID. Processes that ended long ago are forgotten.',
    'Call `session.info` for the list.',
  ],
  unsupported_capability: [
    'REXD sessions and files',
    'The configuration, the transport or the session does not grant this. `data.capability` names it.',
    'Set the key that the message names, or use another transport.',
  ],
  resource_limit: [
    'REXD sessions and files',
    'The call exceeds a limit of processes, sessions, time, bytes or entries. `data` has the limit.',
    'Ask for less, or raise the limit.',
  ],
  forbidden_path: [
    'REXD sessions and files',
    'The path, or the target of a link on it, is outside the roots of the session. `data` has `path` and `allowed_roots`.',
    'Use a path inside a root, or add a root.',
  ],
  file_not_found: ['REXD sessions and files', 'The path does not exist.', 'Call `fs.list`. On an agent: `x0x ls`.'],
  file_error: [
    'REXD sessions and files',
    'The file system refused: no permission, no space, or a directory in place of a file. `data.errno` names the cause.',
    'Follow the message.',
  ],
  bad_range: [
    'REXD sessions and files',
    'The range of a download begins after the end of the file. `data.size` is its size.',
    'Ask for the status of the file, and download it again.',
  ],
  daemon_unreachable: [
    'The daemon',
    'The command line cannot reach the local daemon.',
    'Start `x0xd`. Check `--name`, `--data-dir` and `--api`.',
  ],
  draining: [
    'The daemon',
    'The daemon of this machine is draining for a restart. It finishes what runs and accepts no new command. Nothing ran.',
    'Try again when it is back. `x0x exec` without stdin does so by itself ([upgrade.md](upgrade.md#restart-without-losing-runs)).',
  ],
  shutting_down: ['The daemon', 'The daemon is stopping and accepts no new calls.', 'Try again after its start.'],
  internal: ['The daemon', 'This is a defect in x0x.', 'Run the daemon with `X0X_LOG_LEVEL=debug`, and report the log.'],
}

const CODES = Object.keys(ERROR_TABLE) as ErrorCode[]

const errorTable = (group: string): string =>
  table(
    ['code', 'HTTP', 'RPC', 'exit', 'cause', 'what to do'],
    CODES.filter((each) => ERRORS[each][0] === group).map((each) => {
      const { status, rpc, exit } = ERROR_TABLE[each]
      const [, cause, remedy] = ERRORS[each]
      return [code(each), String(status), String(rpc), String(exit), cause, remedy]
    }),
  )

export const errors = (): string => GROUPS.map((group) => `### ${group}\n\n${errorTable(group)}`).join('\n\n')

/** Why each denial happens, and what the reader does about it. */
const DENIALS: Readonly<Record<DenialReason, readonly [cause: string, remedy: string]>> = {
  unverified_sender: [
    'The target could not verify the signature, the machine or the age of the request.',
    'Upgrade both machines. If it happens again, an attacker may be replaying requests: check the audit log.',
  ],
  trust_rejected: [
    'The requester is verified, but its [trust level](security.md#trust-levels) is too low, it is pinned to another machine, or it is revoked.',
    'On the target: `x0x contacts trust NAME trusted`, `x0x contacts pin NAME MACHINE`.',
  ],
  request_id_used: [
    'A run of this agent and machine has begun under this request ID. Requests that were denied before their program started do not count.',
    'Use a new request ID, or none. The audit log of the target shows how the run ended.',
  ],
  draining: [
    'The target is draining for a restart. It finishes what runs and accepts no new command. Nothing ran.',
    'Requesters repeat the request by themselves until the target is back ([upgrade.md](upgrade.md#restart-without-losing-runs)). After that, run it again.',
  ],
  exec_disabled: [
    'The target has no ACL file, the file has no `[exec]`, or `enabled = false`.',
    'On the target: write the ACL, set `enabled = true`, and restart the daemon.',
  ],
  agent_machine_not_in_acl: [
    'No `[[exec.allow]]` entry has both this agent ID and this machine ID.',
    'Add the pair that `x0x id` prints on the requester. Restart the daemon of the target.',
  ],
  shell_metachar_in_argv: [
    'An argument contains one of <code>; &#124; & > < ` $</code>, a line feed or a NUL. x0x does not use a shell.',
    'Pass each argument separately. Put pipes and redirections into a script on the target, or use them on the requester.',
  ],
  argv_not_allowed: [
    'No rule of the matching entries allows exactly this command.',
    'On the target: `x0x acl explain --last` shows the nearest rule.',
  ],
  cwd_not_allowed: ['The request names a working directory. Requests from the mesh must not.', 'Leave `cwd` out.'],
  detach_not_allowed: [
    'The entry does not have `detach = true`, or the request wants to keep more output than `max_detach_output_bytes`.',
    'Run it attached, ask for less output, or set `detach = true` in the entry.',
  ],
  terminal_not_allowed: [
    'The command does not have `terminal = true`. A command of `ask_patterns` never runs on a terminal.',
    'Run it without `-t`, or set `terminal = true` in its `[[exec.allow.commands]]` block ([terminals.md](terminals.md)).',
  ],
  stdin_too_large: [
    'Stdin is larger than `max_stdin_bytes` of the entry, or the command has `stdin = false`.',
    'Send less, or raise the limit in the ACL.',
  ],
  timeout_too_large: [
    'The API call has a `timeout_ms` above `max_duration_secs` of the entry. (`x0x exec --timeout` is reduced instead, with a warning.)',
    'Ask for less, or leave it out to get the limit.',
  ],
  concurrency_limit_reached: [
    'This agent, or all agents together, run as many commands, keep as many detached runs, or send as much stdin as the target accepts.',
    'Wait until a run ends, remove old detached runs, or raise `max_concurrent_per_agent` or `max_concurrent_total`.',
  ],
  approval_denied: ['An approver refused the run.', 'Ask the approvers of the target.'],
  approval_timeout: ['No approver answered in time.', 'Try again when an approver is connected.'],
  approval_unavailable: [
    'The run needs approval, and the target has no approval service, or no approver is connected to it.',
    'On the target: `x0x approvals watch`, or `x0x ui`.',
  ],
  approval_mismatch: ['The program, its script or its directory changed after the approval.', 'Run it again, for a new approval.'],
  audit_unavailable: [
    'The target cannot write its audit log. It runs nothing, and does not list its rules.',
    'See `journal_unavailable` above, for the target.',
  ],
  recording_unavailable: [
    'The command has `record = true`, and the target cannot record it: its disk is full, or the recordings of the agent or of all agents reached their [limit](limits.md).',
    'On the target: `x0x transcripts list --terminals`, then `x0x transcripts remove --terminals NAME`.',
  ],
  spawn_failed: [
    'The program is missing, is not executable, or changed after the ACL was read. Or the required containment, limits or user are not available.',
    'On the target: `x0x audit tail` shows the cause. Check the program.',
  ],
}

export const denials = (): string =>
  table(
    ['reason', 'cause', 'what to do'],
    DENIAL_REASONS.map((reason) => [code(reason), ...DENIALS[reason]]),
  )

/** The meaning of each warning, and the action of the reader. */
const WARNINGS: Readonly<Record<WarningKind, readonly [meaning: string, remedy: string]>> = {
  stdout_approaching_cap: ['Standard output has reached its warning level. Sent once per run.', 'Nothing, or ask for less output.'],
  stderr_approaching_cap: ['Standard error has reached its warning level. Sent once per run.', 'The same.'],
  duration_approaching_cap: [
    'The run has passed `warn_duration_secs` of the ACL. It ends at `max_duration_secs`.',
    'Nothing, or allow more time.',
  ],
  stdout_cap_hit: [
    'Standard output reached its limit. The run continues, and x0x drops the rest. The result is `truncated`.',
    'Raise `max_stdout_bytes`, or ask for less output.',
  ],
  stderr_cap_hit: ['The same for standard error.', 'Raise `max_stderr_bytes`, or ask for less output.'],
  duration_cap_hit: [
    'The run reached its time limit. x0x sent SIGTERM, then SIGKILL. The command line exits with 255.',
    'Raise `max_duration_secs` or `--timeout`.',
  ],
  timeout_clamped: ['`--timeout` was above the limit of the ACL. The limit applies.', 'Nothing.'],
  cancelled: ['The requester ended the run: Ctrl-C, `x0x exec cancel`, or its own timeout.', 'Nothing.'],
  lease_expired: [
    'The target did not hear from the requester for the duration of the lease, and ended the run.',
    'Check the machine of the requester, and the network.',
  ],
  peer_disconnected: [
    'The requester closed the connection, or lost it and did not reconnect within the lease. The target ended the run. The result is `incomplete`.',
    'Check the network. The command may have done its work.',
  ],
  stdin_mismatch: [
    'Stdin differed from the data that the signed request announced. The target ended the run.',
    'Do not change the file while x0x sends it.',
  ],
  descendant_held_output: [
    'A descendant of the command kept its output open after the command ended. x0x does not read later output.',
    'Let the command wait for it, or let it write to a file.',
  ],
  output_lost: [
    'The end of the output is missing. A descendant continued to write after the command ended, or the disk of the target had no space for the output of a detached run. The result is `incomplete`, and the command line exits with 255.',
    'The same. For a detached run, free disk space on the target.',
  ],
  daemon_stopping: ['The daemon of the target stopped, and ended the run.', 'Run it again later.'],
  access_revoked: [
    'During the run, the target withdrew the trust, pin, key or rule that allowed it, and ended the run.',
    'Ask its operator, if this is a surprise.',
  ],
  ended_by_operator: [
    'An operator of the target ended the run with `x0x exec cancel`. The command line exits with 255.',
    'Ask that operator before you run it again.',
  ],
  descendants_may_survive: [
    'A process of the run may still be alive: it holds the output, hides its environment, or runs as another user, and the daemon is not root. Outside Linux, x0x also sends this for every run that it ended by force.',
    'Look for the process on the target. Set a stronger [`containment`](config.md#containment).',
  ],
  session_recorded: [
    'The ACL entry of the command says `record = true`. The target keeps what the command shows, and not what is typed.',
    'Do not show what must not be kept ([terminals.md](terminals.md#record-a-command)).',
  ],
  session_watchable: [
    'The ACL entry of the command says `watch = true`. Operators of the target may look on.',
    'Do not show what they must not see ([terminals.md](terminals.md#watch-a-command-while-it-runs)).',
  ],
  session_watched: ['An operator of the target looks on now.', 'Do not show what that person must not see.'],
  recording_failed: [
    'The target must record the command. Its disk became full, or the recording reached its limit, so it ended the program.',
    'On the target, remove recordings: `x0x transcripts remove --terminals NAME`.',
  ],
  descendants_ended: [
    'The command ended and left processes running. x0x ended them. The message begins with their number.',
    'Start a service with its manager (`systemctl start NAME`), let the command wait, or use `x0x exec --detach`.',
  ],
  target_draining: [
    'The target denied the request with `draining`. The requester waits and repeats it. The run has not started.',
    'Nothing, or Ctrl-C to stop waiting.',
  ],
}

export const warnings = (): string =>
  table(
    ['kind', 'meaning', 'what to do'],
    WARNING_KINDS.map((kind) => [code(kind), ...WARNINGS[kind]]),
  )
