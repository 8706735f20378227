/** Limits of runs on a terminal. Times are milliseconds unless the name says seconds. Sizes are bytes. */

/** Columns or rows of a terminal. */
export const MAX_MESH_TERMINAL_SIDE = 1_000
/** Name of a terminal type, such as `xterm-256color`. */
export const MAX_TERM_NAME = 64
/** Typed bytes of one signed frame. It fits one encrypted frame with its signature. */
export const MAX_TERMINAL_DATA = 48 * 1024
/** Typed bytes that the program on the target has not taken. A terminal holds 4 KiB of them itself. */
export const MAX_TERMINAL_UNACKED = 256 * 1024
/** … and their frames. Each costs the target one verification. */
export const MAX_TERMINAL_FRAMES_UNACKED = 64
/** Input frames of one run that a target verifies per second. A person types fewer, and the requester joins what is typed meanwhile. */
export const TERMINAL_FRAMES_PER_SECOND = 200
/** … and how many it verifies at once after a pause. */
export const TERMINAL_FRAME_BURST = 100
/** Shortest time between two changes of the size of a terminal. A program that draws the whole screen needs this long. */
export const TERMINAL_RESIZE_MS = 20
/** Terminals of this agent for which the executor process signs input. Each is one run of a local client. */
export const MAX_OWN_TERMINALS = 1_024
/** Input frames that the executor process signs per second for all terminals together. */
export const TERMINAL_SIGNATURES_PER_SECOND = 1_000
/** … and after a pause. */
export const TERMINAL_SIGNATURE_BURST = 2_000
/** Typed bytes that it signs per second for all terminals together. */
export const TERMINAL_BYTES_PER_SECOND = 16 * 1024 * 1024
/** … and after a pause. A large paste fits. */
export const TERMINAL_BYTE_BURST = 32 * 1024 * 1024

/** One recording of a command with `record = true`. When it is full, the command is ended. It holds an hour of a busy screen. */
export const MAX_RECORDING = 64 * 1024 * 1024
/** All recordings of one agent. Without room for one more, its commands that must be recorded do not start. */
export const MAX_AGENT_RECORDINGS = 512 * 1024 * 1024
/** All recordings of a machine. Old ones are not removed for new ones, because an agent could remove evidence that way. */
export const MAX_RECORDINGS = 4 * 1024 * 1024 * 1024
/** Their number, so that a directory can be read at each start of a command. */
export const MAX_RECORDING_FILES = 4_000
/** … and of one agent, so that it cannot take all of them. */
export const MAX_RECORDING_FILES_PER_AGENT = 500
/** Days after which a recording is removed. */
export const RECORDING_DAYS = 90
/** Output that is not on disk yet. The program waits beyond it. */
export const MAX_RECORDING_UNWRITTEN = 1024 * 1024
/** Longest time until output is on disk. Each write is synced. */
export const RECORDING_WRITE_MS = 250
