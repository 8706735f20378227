import * as z from 'zod'

/**
 * The same object, but its optional fields also accept null for "absent", because clients with strict function calling send every field. A
 * field whose own type includes null keeps its meaning. Applies to objects in fields and lists too.
 */
export const nullIsAbsent = <T extends z.ZodObject>(object: T): T => {
  const fields = Object.entries(object.shape as Record<string, z.ZodType>).map(([name, field]) => [name, fieldOf(field)])
  return object.safeExtend(Object.fromEntries(fields) as never) as unknown as T
}

const fieldOf = (field: z.ZodType): z.ZodType => {
  if (!(field instanceof z.ZodOptional || field instanceof z.ZodDefault)) return within(field)
  const inner = within(field.unwrap() as z.ZodType)
  if (inner.safeParse(null).success) return field
  if (field instanceof z.ZodOptional) {
    const absent = inner.nullish().transform((value) => value ?? undefined)
    return described(absent.optional(), field)
  }
  const usual = field.def.defaultValue as never
  const filled = inner.nullable().transform((value) => value ?? usual)
  // The published schema keeps a prefault but would lose the default of a transformed field.
  return described(filled, field).prefault(usual)
}

const within = (type: z.ZodType): z.ZodType => {
  if (type instanceof z.ZodObject) return described(nullIsAbsent(type), type)
  if (type instanceof z.ZodArray && type.element instanceof z.ZodObject)
    return described(type.clone({ ...type.def, element: nullIsAbsent(type.element) as never }), type)
  return type
}

const described = <T extends z.ZodType>(made: T, like: z.ZodType): T => {
  const about = like.meta()
  return about === undefined ? made : made.meta(about)
}
