import * as z from 'zod'

import { nullIsAbsent } from '../null-is-absent.ts'
import type { Fields, Kind } from '../../protocol/rexd-fields.ts'
import { METHODS as STATED, type FullParams, type Method } from '../../protocol/rexd-methods.ts'

const schemaOf = (kind: Kind): z.ZodType => {
  switch (kind.is) {
    case 'text': {
      const { min = 0, max = Infinity, unicode = false } = kind
      const least = min > 0 ? z.string().min(min) : z.string()
      const schema = max < Infinity ? least.max(max) : least
      if (!unicode) return schema
      // What the system and the journal count is bytes.
      const fits = (text: string): boolean => Buffer.byteLength(text) <= max
      return schema.refine((text) => text.isWellFormed(), 'not valid Unicode').refine(fits, `expected a text of at most ${max} bytes`)
    }
    case 'whole':
      return z
        .int()
        .min(kind.min)
        .max(kind.max ?? Number.MAX_SAFE_INTEGER)
    case 'flag':
      return z.boolean()
    case 'one_of':
      return z.enum(kind.values)
    case 'list':
      return listOf(kind)
    case 'map': {
      const { max } = kind
      const schema = z.record(schemaOf(kind.names) as z.ZodString, schemaOf(kind.of))
      return schema.refine((map) => Object.keys(map).length <= max, `at most ${max} variables`)
    }
    case 'record':
      return recordOf(kind.fields)
    case 'either':
      return z.union(kind.of.map(schemaOf))
    case 'null_or':
      return schemaOf(kind.of).nullable()
    case 'any':
      return z.unknown()
  }
}

const listOf = ({ of, min, max }: Kind & { is: 'list' }): z.ZodType => {
  const schema = z.array(schemaOf(of))
  const least = min === undefined ? schema : schema.min(min)
  return max === undefined ? least : least.max(max)
}

/** What a record may hold as it arrives, and nothing besides. */
export const recordOf = (fields: Fields): z.ZodObject =>
  nullIsAbsent(
    z.strictObject(
      Object.fromEntries(
        Object.entries(fields).map(([name, { kind, presence, byDefault }]) => {
          const schema = schemaOf(kind)
          return [name, presence === 'required' ? schema : presence === 'optional' ? schema.optional() : schema.default(byDefault)]
        }),
      ),
    ),
  )

export const METHODS = Object.keys(STATED) as Method[]
export const isMethod = (text: string): text is Method => Object.hasOwn(STATED, text)

const made: Partial<Record<Method, z.ZodObject>> = {}

/** The params of a method, as the library checks them: made when it is first asked for, which takes as long as an answer. */
export const paramsOf = <M extends Method>(method: M): z.ZodObject & z.ZodType<FullParams<M>> =>
  (made[method] ??= recordOf(STATED[method])) as z.ZodObject & z.ZodType<FullParams<M>>
