/** An object with only some members of a class: those that a test calls. */
export const fake = <T>(members: Partial<NoInfer<T>>): T => members as T
