// Replaces src/cli/stdin-data.ts in the single-file build, because the sockets of Bun cannot look at data without reading it.

/** Not a literal, because the bundler of Node.js programs does not know the module. */
const FFI = ['bun', 'ffi'].join(':')
/** Number of bytes that wait in a pipe or socket, from asm-generic/ioctls.h. */
const FIONREAD = 0x541b

const bytesWaiting = () => {
  try {
    const { dlopen, ptr } = require(FFI)
    const { symbols } = dlopen('libc.so.6', { ioctl: { args: ['i32', 'u64', 'ptr'], returns: 'i32' } })
    const count = new Int32Array(1)
    return symbols.ioctl(0, FIONREAD, ptr(count)) === 0 ? count[0] : 0
  } catch {
    return 0
  }
}

const data = { isWaiting: async () => bytesWaiting() > 0 }
export const pipeData = () => data
export const socketData = () => data
