import type * as z from 'zod'
import type { FieldTable } from '../../protocol/json-table.ts'
import { type FullParams, METHODS as STATED, type Method } from '../../protocol/rexd/methods.ts'
import { nullIsAbsent } from '../null-is-absent.ts'
import { zodOf } from '../zod-of.ts'

/** A closed object with these fields. */
export const recordOf = (fields: FieldTable): z.ZodObject => nullIsAbsent(zodOf(fields))

export const METHODS = Object.keys(STATED) as Method[]
export const isMethod = (text: string): text is Method => Object.hasOwn(STATED, text)

const made: Partial<Record<Method, z.ZodObject>> = {}

/** Schema of a method's parameters, created on first use because creating it takes as long as an answer. */
export const paramsOf = <M extends Method>(method: M): z.ZodObject & z.ZodType<FullParams<M>> =>
  (made[method] ??= recordOf(STATED[method])) as z.ZodObject & z.ZodType<FullParams<M>>
