/**
 * Limits of what holds the processes of a run together and confines them, each with its reason. Times
 * are milliseconds unless the name says seconds; sizes are bytes.
 */

/** How often descendants are looked for and stopped before they are killed; each time finds only what was born since. */
export const FREEZE_ROUNDS = 16
/** How long they are looked for, and what is known is killed: a run that is ended is over in time. */
export const FREEZE_MS = 1_000
/** One look through all processes of the host; 10,000 new ones take about as long. */
export const MARK_LOOK_MS = 1_000
/** How often, and after which pause, who does not show its environment is looked at again before it is told of. */
export const HIDDEN_LOOKS = 4
export const HIDDEN_LOOK_MS = 100
/** Environments that are read at the same time: one that hangs in the kernel holds one of the four threads that also write the journal. */
export const MAX_READS = 2
/** From SIGKILL to the moment when a program that lives, and is another user's by now, is given up. */
export const KILL_REFUSED_MS = 1_000
/** The same for one that the kernel itself holds, or takes this long to take apart. */
export const KILL_DEAF_MS = 10_000
/** How long the end of a run waits for a killed process that the kernel does not let go of. */
export const CELL_END_MS = 2_000
/** How often it looks, in milliseconds. */
export const CELL_LOOK_MS = 1
/** How long bwrap may take from its start to the program's; then the program counts as started. */
export const NAMESPACE_START_MS = 5_000
/** Of what bwrap says when it fails, this much is kept. */
export const MAX_WRAPPER_TEXT = 4_096
/** A probe of what this host can do. */
export const PROBE_MS = 5_000
/** From SIGXCPU at `max_cpu_secs` to SIGKILL, in seconds of processor time. */
export const CPU_KILL_LEAD_SECS = 1
/** Processes that bwrap adds to a run of its own: itself and the init of the namespace. */
export const NAMESPACE_PROCESSES = 2
/** How the memory of a probe is limited: enough for any `true`. */
export const PROBE_MEMORY_BYTES = 64 * 1024 * 1024
/** Interpreters of interpreters of a script that are followed, as the kernel does. */
export const MAX_INTERPRETERS = 5
