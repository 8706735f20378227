import { attempt } from './errors.ts'

/** Where a value stands: keys of tables, indices of arrays (also of arrays of tables). */
export type KeyPath = readonly (string | number)[]

/** Bare keys of TOML 1.0; anything else is quoted. */
const BARE_KEY = /[A-Za-z0-9_-]+/y
const SPACE = /[ \t]*/y
const BLANK = /(?:[ \t\r\n]|#[^\n]*)*/y
const STRING = /"""(?:[^\\]|\\[\s\S])*?"{3,5}|'''[\s\S]*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'/y
const SCALAR = /[^,\]}\n#]*/y

const nameOf = (path: KeyPath): string => JSON.stringify(path)

/**
 * Reads TOML that a parser has already accepted and notes on which line each key, table and array
 * element begins. It judges nothing; on text that is not TOML it stops early.
 */
class TomlLines {
  readonly lines = new Map<string, number>()
  readonly #text: string
  #at = 0
  #countedTo = 0
  #line = 1
  /** How many elements of each array of tables were read so far, by its path. */
  readonly #elements = new Map<string, number>()

  constructor(text: string) {
    this.#text = text
  }

  read(): this {
    let table: KeyPath = []
    for (this.#match(BLANK); this.#at < this.#text.length; this.#match(BLANK)) {
      const before = this.#at
      if (this.#take('[[')) table = this.#header(true)
      else if (this.#take('[')) table = this.#header(false)
      else this.#pair(table)
      if (this.#at === before) break
    }
    return this
  }

  #header(ofArray: boolean): KeyPath {
    const keys = this.#dottedKey()
    let path: KeyPath = []
    keys.forEach((key, i) => {
      path = [...path, key]
      const name = nameOf(path)
      if (ofArray && i === keys.length - 1) {
        this.#note(path)
        this.#elements.set(name, (this.#elements.get(name) ?? 0) + 1)
      }
      const seen = this.#elements.get(name)
      if (seen !== undefined) path = [...path, seen - 1]
    })
    if (!this.#take(ofArray ? ']]' : ']')) this.#at = this.#text.length
    return this.#note(path)
  }

  #pair(table: KeyPath): void {
    const path = [...table]
    for (const key of this.#dottedKey()) {
      path.push(key)
      this.#note(path)
    }
    this.#match(SPACE)
    if (!this.#take('=')) return
    this.#match(SPACE)
    this.#value(path)
  }

  #value(path: KeyPath): void {
    if (this.#take('[')) this.#list(']', (index) => this.#value(this.#note([...path, index])))
    else if (this.#take('{')) this.#list('}', () => this.#pair(path))
    else if (this.#match(STRING) === '') this.#match(SCALAR)
  }

  #list(close: string, item: (index: number) => void): void {
    for (let index = 0; ; index++) {
      this.#match(BLANK)
      if (this.#at >= this.#text.length || this.#take(close)) return
      const before = this.#at
      item(index)
      this.#match(BLANK)
      if (!this.#take(',') && this.#at === before) return
    }
  }

  #dottedKey(): string[] {
    const keys: string[] = []
    do {
      this.#match(SPACE)
      const quoted = this.#match(STRING)
      keys.push(quoted === '' ? this.#match(BARE_KEY) : unquote(quoted))
      this.#match(SPACE)
    } while (this.#take('.'))
    return keys
  }

  #note(path: KeyPath): KeyPath {
    for (; this.#countedTo < this.#at; this.#countedTo++) if (this.#text[this.#countedTo] === '\n') this.#line++
    const name = nameOf(path)
    if (!this.lines.has(name)) this.lines.set(name, this.#line)
    return path
  }

  #take(token: string): boolean {
    if (!this.#text.startsWith(token, this.#at)) return false
    this.#at += token.length
    return true
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)?.[0] ?? ''
    this.#at += found.length
    return found
  }
}

const unquote = (quoted: string): string => {
  const value = quoted.startsWith("'") ? null : attempt(() => String(JSON.parse(quoted)))
  return value ?? quoted.slice(1, -1)
}

/**
 * Answers for a path the line, from 1, on which its value begins; for a path that the text does not have (a missing key),
 * the line of the innermost table or array around it. Reads the text once, at the first call.
 */
export const linesOf = (text: string): ((path: KeyPath) => number) => {
  let lines: ReadonlyMap<string, number> | null = null
  return (path) => {
    lines ??= new TomlLines(text).read().lines
    for (let length = path.length; length > 0; length--) {
      const line = lines.get(nameOf(path.slice(0, length)))
      if (line !== undefined) return line
    }
    return 1
  }
}
