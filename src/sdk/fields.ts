type Camel<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S

/** A protocol type with field names in camel case. */
export type CamelCase<T> = T extends readonly (infer Item)[]
  ? readonly CamelCase<Item>[]
  : T extends object
    ? { readonly [Key in keyof T as Key extends string ? Camel<Key> : Key]: CamelCase<T[Key]> }
    : T

const camel = (name: string): string => name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())

/** The same value with names in camel case at all depths. Not for objects with arbitrary keys. */
export const camelCase = <T>(value: T): CamelCase<T> => {
  if (Array.isArray(value)) return value.map((item: unknown) => camelCase(item)) as CamelCase<T>
  if (typeof value !== 'object' || value === null) return value as CamelCase<T>
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [camel(name), camelCase(inner as unknown)])) as CamelCase<T>
}

/** Drops fields that are `undefined`. */
export const present = <T extends object>(fields: { readonly [Key in keyof T]: T[Key] | undefined }): T =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T
