// Replaces node:net and node:tty in the command line if the runtime is Bun, whose sockets start faster. It has only the parts that
// src/clients/http1.ts and src/programs/x0x/stdin-source.ts use.
import { EventEmitter } from 'node:events'
import { closeSync, readlinkSync, readSync } from 'node:fs'
import { Readable } from 'node:stream'

const aborted = (signal) =>
  Object.assign(new Error('The operation was aborted', { cause: signal.reason }), { name: 'AbortError', code: 'ABORT_ERR' })

class Connection extends EventEmitter {
  destroyed = false
  #closed = false
  #socket = null
  /** Data that was written and that the socket has not taken yet. */
  #waiting = []
  #isFull = false
  #isPaused = false
  #signal
  #abort = () => this.destroy(aborted(this.#signal))

  constructor({ path, host, port, signal }) {
    super()
    this.#signal = signal
    const where = path === undefined ? { hostname: host ?? '127.0.0.1', port: Number(port) } : { unix: path }
    const socket = {
      open: (socket) => this.#opened(socket),
      data: (_, bytes) => void this.emit('data', bytes),
      drain: () => this.#flush(),
      end: () => void this.emit('end'),
      close: () => this.#close(),
      error: (_, error) => this.destroy(error),
    }
    if (signal?.aborted) {
      queueMicrotask(this.#abort)
      return
    }
    signal?.addEventListener('abort', this.#abort)
    globalThis.Bun.connect({ ...where, socket }).catch((error) => this.destroy(error))
  }

  #opened(socket) {
    this.#socket = socket
    if (this.destroyed) {
      socket.terminate()
      return
    }
    if (this.#isPaused) socket.pause()
    this.#flush()
  }

  #flush() {
    while (this.#waiting.length > 0) {
      const [first] = this.#waiting
      const taken = this.#socket.write(first)
      if (taken < first.length) {
        if (taken > 0) this.#waiting[0] = first.subarray(taken)
        return
      }
      this.#waiting.shift()
    }
    if (!this.#isFull) return
    this.#isFull = false
    this.emit('drain')
  }

  /** Returns false if the writer should wait for `drain`. */
  write(data, encoding) {
    if (this.destroyed) return true
    this.#waiting.push(typeof data === 'string' ? Buffer.from(data, encoding) : data)
    if (this.#socket !== null) this.#flush()
    this.#isFull = this.#waiting.length > 0
    return !this.#isFull
  }

  /** Does nothing, because data that is written together is also sent together. */
  cork() {}
  uncork() {}

  pause() {
    this.#isPaused = true
    this.#socket?.pause()
  }

  resume() {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#socket?.resume()
  }

  destroy(error) {
    if (this.destroyed) return
    this.destroyed = true
    this.#waiting.length = 0
    if (error !== undefined) this.emit('error', error)
    this.#socket?.end()
    this.#close()
  }

  #close() {
    if (this.#closed) return
    this.#closed = true
    this.destroyed = true
    this.#signal?.removeEventListener('abort', this.#abort)
    this.emit('close')
  }
}

export const connect = (to) => new Connection(to)

/** These modules are loaded at the first call. */
export const isIPv4 = (text) => require('node:net').isIPv4(text)
export const isatty = (fd) => require('node:tty').isatty(fd)

/** Pause before the next read of a descriptor that had no data. */
const PAUSE_MS = 5
const READ_BYTES = 64 * 1024

/**
 * A stream of a non-blocking descriptor. Bun's streams never read a pipe of another process, and keep the process running if they read a
 * terminal. The writer of a named pipe may not have opened it yet.
 */
class Descriptor extends Readable {
  #fd
  #begun
  #timer = null

  constructor(fd) {
    super({ highWaterMark: READ_BYTES })
    this.#fd = fd
    this.#begun = /^(pipe:|\/dev\/)/.test(readlinkSync(`/proc/self/fd/${fd}`))
  }

  _read() {
    if (this.#timer !== null) return
    try {
      this.push(this.#take())
    } catch (error) {
      if (error.code !== 'EAGAIN') {
        this.destroy(error)
        return
      }
      this.#timer = setTimeout(() => {
        this.#timer = null
        this._read()
      }, PAUSE_MS)
    }
  }

  /** Returns the available bytes, or null at the end. Throws EAGAIN if there are none yet. */
  #take() {
    const bytes = Buffer.allocUnsafe(READ_BYTES)
    const begun = this.#begun
    this.#begun = true
    const length = readSync(this.#fd, bytes)
    if (length > 0) return bytes.subarray(0, length)
    if (begun) return null
    this.#begun = false
    throw Object.assign(new Error('nobody writes yet'), { code: 'EAGAIN' })
  }

  _destroy(error, done) {
    clearTimeout(this.#timer)
    closeSync(this.#fd)
    done(error)
  }
}

/** Stream of a pipe. */
export class Socket extends Descriptor {
  constructor({ fd }) {
    super(fd)
  }
}

/** Stream of a terminal. */
export class ReadStream extends Descriptor {}
