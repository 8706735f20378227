import { createHmac, randomBytes } from 'node:crypto'
import { KNOWN_WORDS, type KnownNames } from './known-names.ts'

/** Limit on the items of a list, and on levels of nesting. */
const MAX_ITEMS = 256
const MAX_DEPTH = 8
/** Length limit of a sentence. */
const MAX_TEXT = 1_000
const HASH_DIGITS = 10

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?Z$/
/** The form of x0x's own field names. Names that a person chose are hashed. */
const FIELD = /^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/
const MAX_FIELD = 40
/** Fields with commands, directories and chosen names. For a list of words, only its length is included. */
const LEFT_OUT = new Set([
  'argv',
  'argv_cut',
  'env',
  'cwd',
  'path',
  'pattern',
  'detail',
  'text',
  'tail',
  'roots',
  'session',
  'client_name',
  'tool',
])

const MULTIADDR = /\/(ip4|ip6|dns|dns4|dns6|dnsaddr)\/([^/\s]+)(?=\/)/g
/** Patterns in the order of their application. */
const NAMES: readonly RegExp[] = [
  // A quote without an end may be cut off. An apostrophe within a word does not count as a quote.
  /"(?:[^"\\]|\\.)*(?:"|$)/g,
  /(?<![\w\ue000])'(?:[^']|'(?=\w))*(?:'|$)/g,
  /`[^`]*(?:`|$)/g,
  /“[^”]*(?:”|$)/g,
  /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi,
  /\b[0-9a-f]{8,}\b/gi,
  /\b(?:12D3Koo|Qm)[1-9A-HJ-NP-Za-km-z]{20,}\b/g,
  /\b[a-z][a-z0-9+.-]*:\/\/\S+/gi,
  /\b\d{1,3}(?:\.\d{1,3}){3}\b/g,
  /(?<![\w:])[0-9a-f]{0,4}:(?:[0-9a-f]{0,4}:)+[0-9a-f.]*/gi,
  // Base64.
  /(?=[\w+/-]*[A-Z])(?=[\w+/-]*[a-z])(?<![\w+/-])[\w+/-]{16,}={0,2}/g,
  /(?<![\w/])~?\/(?!(?:ip4|ip6|dns|dns4|dns6|dnsaddr|tcp|p2p)\/)[^\s,;:()]+/g,
  /(?<![\w./\ue000-])(?!docs\/)[\w.-]+\/[^\s,;:()]+/g,
  /\b[\w.-]+@[\w.-]+\b/g,
  // A host name, but not a file name of x0x.
  /\b(?:[a-z0-9-]+\.)+(?!(?:toml|md|json|jsonl|log|sock|key|port|service|socket|pid)\b)[a-z]{2,}\b/gi,
]

/**
 * Removes names from a text or value. Everything is hashed unless it is the same in all installations. The key is never stored, so guesses
 * cannot be tested against the hashes.
 */
export class Redactor {
  readonly #key = randomBytes(32)
  readonly #names: ReadonlySet<string>
  /** Longest first. */
  readonly #known: readonly string[]

  constructor(known: KnownNames) {
    const told = (word: string): boolean => word.trim() === '' || KNOWN_WORDS.has(word)
    this.#names = new Set(known.names.filter((name) => !told(name)))
    this.#known = [...new Set([...known.names, ...known.words])].filter((word) => !told(word)).sort((a, b) => b.length - a.length)
  }

  /** The hash of a word, which is the same within one bundle. */
  hash(word: string): string {
    return `#${createHmac('sha256', this.#key).update(word).digest('hex').slice(0, HASH_DIGITS)}`
  }

  /** Redacts a sentence of x0x that may contain quotations. */
  sentence(text: string): string {
    // Found names are replaced by a number between two characters that no such text has, until all are found.
    const marks: string[] = []
    const mark = (word: string): string => `\ue000${marks.push(this.hash(word)) - 1}\ue000`
    let left = text.slice(0, MAX_TEXT).replaceAll('\ue000', '')
    left = left.replaceAll(MULTIADDR, (_all, kind: string, host: string) => `/${kind}/${mark(host)}`)
    for (const word of this.#known) left = left.replaceAll(wholeWord(word), () => mark(word))
    for (const pattern of NAMES)
      left = left.replaceAll(pattern, (found) =>
        found.includes('\ue000') ? found.replaceAll(/(\ue000\d+\ue000)|[^\ue000]+/g, (_all, known?: string) => known ?? '…') : mark(found),
      )
    return left.replaceAll(/\ue000(\d+)\ue000/g, (_all, at: string) => marks[Number(at)] ?? '#').replaceAll('\ue000', '')
  }

  /** Redacts a value of x0x. Numbers and known words stay, other texts are hashed, and commands are dropped. */
  value(value: unknown, depth = 0): unknown {
    if (value === null || typeof value === 'boolean' || typeof value === 'number') return value
    if (typeof value === 'string') return this.#text(value)
    if (typeof value !== 'object' || depth >= MAX_DEPTH) return '…'
    if (Array.isArray(value)) {
      const items = value.slice(0, MAX_ITEMS).map((item) => this.value(item, depth + 1))
      return value.length > MAX_ITEMS ? [...items, `… ${value.length - MAX_ITEMS} more`] : items
    }
    const fields = Object.entries(value).slice(0, MAX_ITEMS)
    return Object.fromEntries(fields.map(([name, field]) => this.#field(name, field, depth)))
  }

  #field(name: string, field: unknown, depth: number): [string, unknown] {
    const isOurs = FIELD.test(name) && name.length <= MAX_FIELD && !this.#names.has(name)
    if (!isOurs) return [this.hash(name), this.value(field, depth + 1)]
    if (!LEFT_OUT.has(name) || field === null) return [name, this.value(field, depth + 1)]
    return [name, Array.isArray(field) ? `… of ${field.length}` : '…']
  }

  #text(text: string): string {
    if (KNOWN_WORDS.has(text) || TIME.test(text)) return text
    return text.startsWith('/ip') || text.startsWith('/dns') ? this.#address(text) : this.hash(text)
  }

  /** Keeps the kind and the port of an address. */
  #address(text: string): string {
    const [, kind = '', host = '', transport = '', port = ''] = text.split('/')
    const known = /^(?:ip4|ip6|dns|dns4|dns6)$/.test(kind) && transport === 'tcp' && /^\d{1,5}$/.test(port)
    return known ? `/${kind}/${this.hash(host)}/tcp/${port}` : this.hash(text)
  }
}

const wholeWord = (word: string): RegExp =>
  new RegExp(`(?<![\\w\ue000])${word.replaceAll(/[.*+?^${}()|[\]\\/-]/g, '\\$&')}(?![\\w\ue000])`, 'gi')
