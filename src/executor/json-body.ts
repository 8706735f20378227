import { AppError, errorText } from '../base/errors.ts'

/** A JSON object whose keys are all known, read key by key; null is as good as absent where a key may be. Everything throws `bad_request` naming the key. */
export class JsonBody {
  readonly #fields: Record<string, unknown>

  constructor(bytes: Uint8Array) {
    let value: unknown
    try {
      value = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
    } catch (error) {
      throw new AppError('bad_request', `the body is not JSON: ${errorText(error)}`, { cause: error })
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new AppError('bad_request', 'the body is not a JSON object')
    this.#fields = value as Record<string, unknown>
  }

  only(...keys: readonly string[]): this {
    for (const key of Object.keys(this.#fields))
      if (!keys.includes(key)) throw new AppError('bad_request', `unknown key ${JSON.stringify(key)}; known are ${keys.join(', ')}`)
    return this
  }

  has(key: string): boolean {
    return (this.#get(key) ?? null) !== null
  }

  /** Unchecked. */
  value(key: string): unknown {
    return this.#get(key)
  }

  text(key: string): string {
    const value = this.#get(key)
    return typeof value === 'string' ? value : wrong(key, value, 'a text')
  }

  all<const K extends string>(keys: readonly K[]): Record<K, string> {
    return Object.fromEntries(keys.map((key) => [key, this.text(key)])) as Record<K, string>
  }

  optionalText(key: string): string | undefined {
    return this.has(key) ? this.text(key) : undefined
  }

  textOrNull(key: string): string | null {
    return this.#get(key) === null ? null : this.text(key)
  }

  texts(key: string): readonly string[] {
    const value = this.#get(key)
    return Array.isArray(value) && value.every((item) => typeof item === 'string') ? value : wrong(key, value, 'a list of texts')
  }

  /** An object of texts, some of which may be null. */
  textsByKey(key: string): Readonly<Record<string, string | null>> {
    const value = this.#get(key)
    const fits = typeof value === 'object' && value !== null && !Array.isArray(value)
    if (!fits || !Object.values(value).every((item) => item === null || typeof item === 'string'))
      return wrong(key, value, 'an object of texts and nulls')
    return value as Record<string, string | null>
  }

  /** Of 0 or more; undefined where the key is absent. */
  optionalCount(key: string): number | undefined {
    if (!this.has(key)) return undefined
    const value = this.#get(key)
    return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : wrong(key, value, 'a whole number of 0 or more')
  }

  optionalFlag(key: string): boolean | undefined {
    if (!this.has(key)) return undefined
    const value = this.#get(key)
    return typeof value === 'boolean' ? value : wrong(key, value, 'true or false')
  }

  /** It is there, and true or false. */
  isFlag(key: string): boolean {
    return typeof this.#get(key) === 'boolean'
  }

  /** An object in it; undefined where the key is absent. */
  optionalObject(key: string): JsonBody | undefined {
    return this.has(key) ? new JsonBody(Buffer.from(JSON.stringify(this.#get(key)))) : undefined
  }

  #get(key: string): unknown {
    return Object.hasOwn(this.#fields, key) ? this.#fields[key] : undefined
  }
}

const wrong = (key: string, value: unknown, expected: string): never => {
  throw new AppError('bad_request', `${key}: ${value === undefined ? 'missing' : `expected ${expected}`}`)
}
