/**
 * States REXD's messages once for both ends. A statement is the source of the TypeScript types, of the server's check of
 * what arrives, of the client's check of answers, and of the JSON Schema in `proto/`. No library: the client has none.
 */

/** What a field may hold, as data. */
export type Kind =
  | { readonly is: 'text'; readonly min?: number; readonly max?: number; readonly unicode?: boolean }
  | { readonly is: 'whole'; readonly min: number; readonly max?: number }
  | { readonly is: 'flag' }
  | { readonly is: 'one_of'; readonly values: readonly string[] }
  | { readonly is: 'list'; readonly of: Kind; readonly min?: number; readonly max?: number }
  | { readonly is: 'map'; readonly names: Kind; readonly of: Kind; readonly max: number }
  | { readonly is: 'record'; readonly fields: Fields }
  | { readonly is: 'either'; readonly of: readonly [Kind, Kind] }
  | { readonly is: 'null_or'; readonly of: Kind }
  /** Any JSON, not checked. */
  | { readonly is: 'any' }

/** A field with a default may be left out by the sender, and is always there for the receiver. */
type Presence = 'required' | 'optional' | 'default'

export interface Field<T, P extends Presence = 'required'> {
  readonly kind: Kind
  readonly presence: P
  /** The default, where `presence` says that there is one. */
  readonly byDefault?: T
}
export type Fields = Readonly<Record<string, Field<unknown, Presence>>>

export type ValueOf<F> = F extends Field<infer T, Presence> ? T : never
type Flat<T> = { readonly [K in keyof T]: T[K] }
type Present<S extends Fields, P extends Presence> = { [K in keyof S as S[K]['presence'] extends P ? K : never]: ValueOf<S[K]> }
/** A record as its sender writes it. */
export type Sent<S extends Fields> = Flat<Present<S, 'required'> & Partial<Present<S, 'optional' | 'default'>>>
/** A record as its receiver has it: defaults stand where the sender left a field out. */
export type Received<S extends Fields> = Flat<Present<S, 'required' | 'default'> & Partial<Present<S, 'optional'>>>

const field = <T>(kind: Kind): Field<T> => ({ kind, presence: 'required' })

export const text = <T extends string = string>(bounds: { min?: number; max?: number; unicode?: boolean } = {}): Field<T> =>
  field({ is: 'text', ...bounds })
export const whole = (bounds: { min?: number; max?: number } = {}): Field<number> => field({ is: 'whole', min: 0, ...bounds })
export const flag = (): Field<boolean> => field({ is: 'flag' })
export const oneOf = <const T extends string>(values: readonly T[]): Field<T> => field({ is: 'one_of', values })
export const list = <T>({ kind }: Field<T>, bounds: { min?: number; max?: number } = {}): Field<readonly T[]> =>
  field({ is: 'list', of: kind, ...bounds })
export const map = <T>(names: Field<string>, { kind }: Field<T>, bounds: { max: number }): Field<Readonly<Record<string, T>>> =>
  field({ is: 'map', names: names.kind, of: kind, ...bounds })
export const record = <S extends Fields>(fields: S): Field<Sent<S>> => field({ is: 'record', fields })
export const either = <A, B>(a: Field<A>, b: Field<B>): Field<A | B> => field({ is: 'either', of: [a.kind, b.kind] })
export const orNull = <T>({ kind }: Field<T>): Field<T | null> => field({ is: 'null_or', of: kind })
export const any = <T>(): Field<T> => field({ is: 'any' })

export const optional = <T>({ kind }: Field<T>): Field<T, 'optional'> => ({ kind, presence: 'optional' })
export const byDefault = <T>(value: NoInfer<T>, { kind }: Field<T>): Field<T, 'default'> => ({
  kind,
  presence: 'default',
  byDefault: value,
})

/** How bytes stand in a JSON text: as UTF-8 text, or in base64 (RFC 4648, 4, with padding). */
export const ENCODING = oneOf(['utf8', 'base64'])
export type Encoding = ValueOf<typeof ENCODING>
