import { WARNING_KINDS, type WarningKind } from '../../src/protocol/reasons.ts'
import { code, table } from './table.ts'

/** What each warning means, and what the reader does about it. */
const WARNINGS: Readonly<Record<WarningKind, readonly [meaning: string, remedy: string]>> = {
  stdout_approaching_cap: ['Standard output has passed its warning level; once per run.', 'Nothing, or ask for less output.'],
  stderr_approaching_cap: ['Standard error has passed its warning level; once per run.', 'The same.'],
  duration_approaching_cap: [
    'The run has passed `warn_duration_secs` of the ACL. `max_duration_secs` ends it.',
    'Nothing, or allow more time.',
  ],
  stdout_cap_hit: [
    'Standard output reached its cap: the rest is counted and dropped, the run goes on, the result is `truncated`.',
    'Raise `max_stdout_bytes`, or ask for less.',
  ],
  stderr_cap_hit: ['Standard error reached its cap.', 'Raise `max_stderr_bytes`, or ask for less.'],
  duration_cap_hit: [
    'The time was up: SIGTERM, then SIGKILL. The command line exits with 255.',
    'Raise `max_duration_secs` or `--timeout`.',
  ],
  timeout_clamped: [`The command line's \`--timeout\` was above the cap, and the cap is in force.`, 'Nothing.'],
  cancelled: ['The requester ended the run: Ctrl-C, `x0x exec cancel`, or its own timeout.', 'Nothing.'],
  lease_expired: [
    'The requester was silent for the lease, and the run was ended.',
    `Check the requester's machine and the network between.`,
  ],
  peer_disconnected: [
    'The connection was lost and nobody came back within the lease, or the requester closed it before the end; the run was ended.',
    'Check the network. The result is `incomplete`: the command may have done its work.',
  ],
  stdin_mismatch: ['Stdin was not what the signed request announced, and the run was ended.', 'Do not change the file while it is sent.'],
  descendant_held_output: [
    'A descendant kept the pipes open after the command had ended; what it writes later is not read.',
    'Let it redirect its output, or wait for it.',
  ],
  output_lost: [
    'The end of the output is missing: a descendant of the command went on writing when it had ended, and reading stopped after 2 s or 4 MiB; or the disk over there took no more output of a run that outlives its caller. The result is `incomplete`, and the command line exits with 255.',
    'Let the command wait for what it starts, or let that write to a file.',
  ],
  daemon_stopping: ['The executing daemon stopped and ended the run.', 'Run it again later.'],
  access_revoked: [
    'Trust, pin or key of the requester was withdrawn while the run went on, or a reload took its command out of the ACL, and the run was ended.',
    'Nothing, if that was meant.',
  ],
  ended_by_operator: [
    'An operator of the executing machine ended the run (`x0x exec cancel` there). The command line exits with 255.',
    'Ask that operator before you run it again.',
  ],
  descendants_may_survive: [
    `A process of the run may still live: a descendant that was not found holds its output or hides its environment, or the program became another user's and cannot be killed by a daemon that is not root. Elsewhere than on Linux, also: the run was ended by force, and its process group is all that could be.`,
    'Give the executing daemon control groups or `bwrap` (`containment` in [config.md](config.md)); look for the process there.',
  ],
  descendants_ended: [
    'The command ended by itself and left processes running. x0x ended them with the run. The message begins with their number. Processes that end within 0.2 s of the command do not count. See [run-commands.md](run-commands.md#keep-a-process-running-after-its-command).',
    'Start a service by its manager (`systemctl start NAME`), let the command wait for what it starts, or run it detached (`x0x exec --detach`).',
  ],
}

export const warnings = (): string =>
  table(
    ['kind', 'meaning', 'what to do'],
    WARNING_KINDS.map((kind) => [code(kind), ...WARNINGS[kind]]),
  )
