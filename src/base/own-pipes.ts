import { closeSync, constants, fstatSync, openSync } from 'node:fs'

const { O_RDONLY, O_WRONLY, O_RDWR, O_NONBLOCK } = constants

/**
 * Replaces a shared file description by one of this process. Opening both ends first makes sure that the pipe has a reader and a writer,
 * without which the next open would wait or fail.
 */
const reopen = (fd: number): void => {
  if (!fstatSync(fd).isFIFO()) return
  const both = openSync(`/proc/self/fd/${fd}`, O_RDWR | O_NONBLOCK)
  closeSync(fd)
  // open(2) returns the lowest free number, which is this one.
  openSync(`/proc/self/fd/${both}`, fd === 0 ? O_RDONLY : O_WRONLY)
  closeSync(both)
}

let done = false

/**
 * Opens each pipe among the standard descriptors again, before the runtime opens its streams. The runtime makes a pipe
 * non-blocking, and that flag belongs to the file description, which other programs share: their writes would fail. The
 * runtime does the same for terminals by itself, and regular files stay blocking. A socket cannot be
 * opened again, and neither can a pipe of another user (`sudo -u`) or one without /proc. The runtime makes these non-blocking, and
 * blocking again at an ordinary end. Linux only; elsewhere nothing.
 */
export const useOwnPipes = (): void => {
  if (done) return
  done = true
  for (const fd of [0, 1, 2])
    try {
      reopen(fd)
    } catch {
      // The descriptor stays as the runtime makes it.
    }
}
