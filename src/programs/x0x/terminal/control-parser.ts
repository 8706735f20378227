import { utf8Text } from '../../../protocol/text.ts'

/** A control sequence (ECMA-48 5.4), such as `CSI ? 25 h`. */
export interface ControlSequence {
  readonly raw: Uint8Array
  /** With a private marker such as `?`. */
  readonly parameters: string
  readonly intermediates: string
  readonly final: string
  /** Controls within the sequence, which a terminal performs at once. */
  readonly controls: Uint8Array
}

/** Receives the parts of terminal output in order. */
export interface OutputParts {
  /** Text, and controls of one character. */
  text(bytes: Uint8Array): void
  /** A control of C0 or C1 that makes a terminal answer. */
  query(raw: Uint8Array): void
  /** ESC with its intermediates and final character. */
  escape(raw: Uint8Array, intermediates: string, final: string): void
  sequence(sequence: ControlSequence): void
  /** A whole operating system command (OSC). `body` is null if it is too long or has control characters. */
  command(raw: Uint8Array, body: string | null): void
}

type State = 'text' | 'escape' | 'sequence' | 'ignore' | 'command' | 'string'

const [ENQ, BEL, CAN, SUB, ESC, DEL] = [0x05, 0x07, 0x18, 0x1a, 0x1b, 0x7f] as const
/** Longest sequence, and longest command. Longer ones are left out. */
const MAX_SEQUENCE = 256
const MAX_COMMAND = 4_096
/** C1 controls, also as `ESC` and this minus 0x40. */
const [DCS, SOS, DECID, CSI, ST, OSC, PM, APC] = [0x90, 0x98, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f] as const
/** Lead byte of a C1 control in UTF-8. */
const C1_LEAD = 0xc2

const isC1 = (byte: number): boolean => byte >= 0x80 && byte <= 0x9f

/** Continuation bytes that follow a lead byte of UTF-8. */
const continuations = (byte: number): number => (byte < 0xc2 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : byte < 0xf5 ? 3 : 0)

/** Start and end of the content of a control function. Each mark has one byte or two. */
const startOf = (raw: Uint8Array): number => (raw[0] === ESC || raw[0] === C1_LEAD ? 2 : 1)
const endOf = (raw: Uint8Array): number => {
  const [before, last] = raw.subarray(-2)
  const isTwo = (before === ESC && last === 0x5c) || (before === C1_LEAD && last === ST)
  return raw.length - (isTwo ? 2 : 1)
}

const NO_CONTROLS = new Uint8Array(0)

const bytesOf = (held: readonly number[]): Uint8Array => Uint8Array.from(held)

/** Separates text from control functions in a stream of bytes. Pieces may end anywhere. It holds at most MAX_COMMAND bytes. */
export class ControlParser {
  readonly #to: OutputParts
  #state: State = 'text'
  /** Bytes of an unfinished control function, or of a character that may become one. */
  #held: number[] = []
  #controls: number[] = []
  /** Continuation bytes that the present character still needs. */
  #expected = 0
  /** The byte before was ESC within a string. */
  #escaped = false
  #isTooLong = false

  constructor(to: OutputParts) {
    this.#to = to
  }

  push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length;) {
      const end = this.#state === 'text' ? this.#textEnd(bytes, at) : at
      if (end > at) this.#to.text(bytes.subarray(at, end))
      at = this.#wholeSequence(bytes, end)
      if (at === end && at < bytes.length && this.#take(bytes[at]!)) at += 1
    }
  }

  /** Takes a common sequence that begins here and is whole. Others are read byte by byte. Returns where it ends. */
  #wholeSequence(bytes: Uint8Array, from: number): number {
    if (this.#state !== 'text' || this.#held.length > 0 || bytes[from] !== ESC || bytes[from + 1] !== 0x5b) return from
    const last = Math.min(bytes.length, from + MAX_SEQUENCE) - 1
    let at = from + 2
    while (at < last && bytes[at]! >= 0x30 && bytes[at]! <= 0x3f) at += 1
    const byte = bytes[at] ?? 0
    if (at > last || byte < 0x40 || byte >= DEL) return from
    const raw = bytes.subarray(from, at + 1)
    const parameters = String.fromCharCode(...bytes.subarray(from + 2, at))
    this.#to.sequence({ raw, parameters, intermediates: '', final: String.fromCharCode(byte), controls: NO_CONTROLS })
    return at + 1
  }

  /** Finds the next byte that is not plain text. */
  #textEnd(bytes: Uint8Array, from: number): number {
    if (this.#held.length > 0) return from
    for (let at = from; at < bytes.length; at++) {
      const byte = bytes[at]!
      if (this.#expected > 0 && byte >= 0x80 && byte <= 0xbf) {
        this.#expected -= 1
        continue
      }
      this.#expected = 0
      if (byte === ESC || byte === ENQ || byte === C1_LEAD || isC1(byte)) return at
      this.#expected = continuations(byte)
    }
    return bytes.length
  }

  /** Consumes a byte that is not plain text. False means that it is read again in another state. */
  #take(byte: number): boolean {
    switch (this.#state) {
      case 'text':
        return this.#begin(byte)
      case 'escape':
        return this.#takeEscape(byte)
      case 'sequence':
      case 'ignore':
        return this.#takeSequence(byte)
      case 'command':
      case 'string':
        return this.#takeString(byte)
    }
  }

  #begin(byte: number): boolean {
    const isLead = this.#held.length === 1
    if (isLead && !(byte >= 0x80 && byte <= 0xbf)) {
      this.#to.text(this.#taken())
      return false
    }
    this.#held.push(byte)
    if (byte === ESC) this.#state = 'escape'
    else if (byte === ENQ) this.#to.query(this.#taken())
    else if (isC1(byte)) this.#beginC1(byte)
    else if (isLead) this.#to.text(this.#taken())
    return true
  }

  #beginC1(byte: number): void {
    if (byte === CSI) this.#state = 'sequence'
    else if (byte === OSC) this.#state = 'command'
    else if (byte === DCS || byte === SOS || byte === PM || byte === APC) this.#state = 'string'
    else if (byte === DECID) this.#to.query(this.#taken())
    else if (byte === ST) this.#held = []
    else this.#to.text(this.#taken())
  }

  #takeEscape(byte: number): boolean {
    if (byte === ESC) {
      this.#held = [ESC]
      return true
    }
    if (byte < 0x20 || byte >= DEL || this.#held.length >= MAX_SEQUENCE) return this.#abandon()
    const isFirst = this.#held.length === 1
    this.#held.push(byte)
    if (byte < 0x30) return true
    const c1 = byte + 0x40
    // A title of screen and tmux is a string too.
    if (isFirst && (byte === 0x6b || [DCS, SOS, DECID, CSI, ST, OSC, PM, APC].some((one) => one === c1))) this.#beginString(byte, c1)
    else {
      const intermediates = String.fromCharCode(...this.#held.slice(1, -1))
      this.#to.escape(this.#taken(), intermediates, String.fromCharCode(byte))
    }
    return true
  }

  #beginString(byte: number, c1: number): void {
    this.#state = 'text'
    if (byte === 0x6b) this.#state = 'string'
    else this.#beginC1(c1)
  }

  #takeSequence(byte: number): boolean {
    if (byte === ESC || byte >= 0x80) return this.#abandon()
    if (byte === CAN || byte === SUB) {
      this.#abandon()
      return true
    }
    if (byte === DEL) return true
    if (byte < 0x20) {
      if (byte === ENQ) return true
      if (this.#controls.length < MAX_SEQUENCE) this.#controls.push(byte)
    }
    if (this.#held.length >= MAX_SEQUENCE) this.#state = 'ignore'
    if (this.#state === 'sequence') this.#held.push(byte)
    if (byte >= 0x40) this.#endSequence()
    return true
  }

  #endSequence(): void {
    const isWhole = this.#state === 'sequence'
    const controls = bytesOf(this.#controls)
    const raw = this.#taken()
    if (!isWhole) return this.#to.text(controls)
    const [, parameters = '', intermediates = '', final = ''] =
      /^([0-?]*)([ -/]*)([@-~])$/.exec(Buffer.from(raw.subarray(startOf(raw)).filter((byte) => byte >= 0x20)).toString('latin1')) ?? []
    // The parts of a malformed sequence are in another order.
    if (final === '') this.#to.text(controls)
    else this.#to.sequence({ raw, parameters, intermediates, final, controls })
  }

  /** A string ends at ST, at another escape sequence, or at CAN and SUB. A command also ends at BEL. */
  #takeString(byte: number): boolean {
    const isEnd = (this.#state === 'command' && byte === BEL) || (this.#escaped && byte === 0x5c) || this.#endsInC1(byte)
    if (this.#escaped && !isEnd) {
      this.#abandon()
      this.#held = [ESC]
      this.#state = 'escape'
      return false
    }
    if (byte === CAN || byte === SUB) {
      this.#abandon()
      return true
    }
    this.#escaped = byte === ESC
    this.#keep(byte)
    if (isEnd) this.#endString()
    return true
  }

  /** True for ST in its form of one byte or two. False for a continuation byte of another character. */
  #endsInC1(byte: number): boolean {
    if (this.#expected > 0 && byte >= 0x80 && byte <= 0xbf) {
      this.#expected -= 1
      return byte === ST && this.#held.at(-1) === C1_LEAD && this.#expected === 0
    }
    this.#expected = continuations(byte)
    return byte === ST
  }

  #keep(byte: number): void {
    if (this.#state === 'string') {
      // Only the last byte matters.
      this.#held = [byte]
      return
    }
    if (this.#held.length < MAX_COMMAND) this.#held.push(byte)
    else {
      this.#isTooLong = true
      this.#held[MAX_COMMAND - 1] = byte
    }
  }

  #endString(): void {
    const isCommand = this.#state === 'command'
    const isTooLong = this.#isTooLong
    const raw = this.#taken()
    if (!isCommand) return
    const body = isTooLong ? null : utf8Text(raw.subarray(startOf(raw), endOf(raw)))
    // oxlint-disable-next-line no-control-regex
    this.#to.command(raw, body === null || /[\u0000-\u001f\u007f-\u009f]/.test(body) ? null : body)
  }

  /** Drops an unfinished function. Its controls were performed. The next byte is read as text. */
  #abandon(): false {
    const controls = bytesOf(this.#controls)
    this.#taken()
    if (controls.length > 0) this.#to.text(controls)
    return false
  }

  #taken(): Uint8Array {
    const raw = bytesOf(this.#held)
    this.#state = 'text'
    this.#held = []
    this.#controls = []
    this.#expected = 0
    this.#escaped = false
    this.#isTooLong = false
    return raw
  }
}
