import type * as z from 'zod'
import type { FieldTable } from '../../protocol/json-table.ts'
import { type FullParams, METHODS as STATED, type Method } from '../../protocol/rexd/methods.ts'
import { nullIsAbsent } from '../null-is-absent.ts'
import { zodOf } from '../zod-of.ts'

/** What a record may hold as it arrives, and nothing besides. */
export const recordOf = (fields: FieldTable): z.ZodObject => nullIsAbsent(zodOf(fields))

export const METHODS = Object.keys(STATED) as Method[]
export const isMethod = (text: string): text is Method => Object.hasOwn(STATED, text)

const made: Partial<Record<Method, z.ZodObject>> = {}

/** The params of a method, as the library checks them: made when it is first asked for, which takes as long as an answer. */
export const paramsOf = <M extends Method>(method: M): z.ZodObject & z.ZodType<FullParams<M>> =>
  (made[method] ??= recordOf(STATED[method])) as z.ZodObject & z.ZodType<FullParams<M>>
