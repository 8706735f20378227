import * as z from 'zod'
import type { JsonField, FieldTable, Kind } from '../protocol/json-table.ts'

type Bounds = { readonly min?: number; readonly max?: number }

const textOf = ({ min = 0, max = Infinity, unicode = false }: Kind & { is: 'text' }): z.ZodType => {
  const least = min > 0 ? z.string().min(min) : z.string()
  const schema = max < Infinity ? least.max(max) : least
  if (!unicode) return schema
  // The executor and the audit log count bytes.
  const fits = (text: string): boolean => Buffer.byteLength(text) <= max
  return schema.refine((text) => text.isWellFormed(), 'not valid Unicode').refine(fits, `expected a text of at most ${max} bytes`)
}

const mapOf = ({ names, of, max }: Kind & { is: 'map' }): z.ZodType => {
  const schema = z.record(schemaOf(names) as z.ZodString, schemaOf(of))
  return max === undefined ? schema : schema.refine((map) => Object.keys(map).length <= max, `at most ${max} variables`)
}

const listOf = (of: z.ZodType, { min, max }: Bounds): z.ZodType => {
  const schema = z.array(of)
  const least = min === undefined ? schema : schema.min(min)
  return max === undefined ? least : least.max(max)
}

const bareOf = (kind: Kind): z.ZodType => {
  switch (kind.is) {
    case 'text':
      return textOf(kind)
    case 'form':
      return z.string().regex(kind.pattern)
    case 'time':
      return z.iso.datetime()
    case 'number':
      return z.number()
    case 'whole':
      return z
        .int()
        .min(kind.min)
        .max(kind.max ?? Number.MAX_SAFE_INTEGER)
    case 'flag':
      return z.boolean()
    case 'true':
      return z.literal(true)
    case 'one_of':
      return kind.values.length === 0 ? z.string() : z.enum(kind.values)
    case 'list':
      return listOf(schemaOf(kind.of), kind)
    case 'map':
      return mapOf(kind)
    case 'record':
      return zodOf(kind.fields)
    case 'either':
      return z.union(kind.of.map(schemaOf))
    case 'null_or':
      return schemaOf(kind.of).nullable()
    case 'any':
      return z.unknown()
    case 'tested':
      return z.unknown().refine(kind.test, `expected ${kind.what}`)
  }
}

const described = (schema: z.ZodType, { says }: Kind): z.ZodType => (says === undefined ? schema : schema.describe(says))

const schemaOf = (kind: Kind): z.ZodType => described(bareOf(kind), kind)

export const zodFor = <T>({ kind }: JsonField<T>): z.ZodType<T> => schemaOf(kind) as z.ZodType<T>

const fieldOf = ({ kind, presence, byDefault }: FieldTable[string]): z.ZodType => {
  const schema = bareOf(kind)
  return described(presence === 'required' ? schema : presence === 'optional' ? schema.optional() : schema.default(byDefault), kind)
}

/** The schema of a field is made when it is first read. Most schemas only describe answers, and a start reads none of them. */
export const shapeOf = (fields: FieldTable): Record<string, z.ZodType> => {
  const shape: Record<string, z.ZodType> = {}
  for (const [name, field] of Object.entries(fields)) {
    let schema: z.ZodType | undefined
    Object.defineProperty(shape, name, { enumerable: true, configurable: true, get: () => (schema ??= fieldOf(field)) })
  }
  return shape
}

/** A closed object with the fields of the table. */
export const zodOf = (fields: FieldTable): z.ZodObject => z.strictObject(shapeOf(fields))
