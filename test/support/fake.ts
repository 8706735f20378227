/** An object with only the members of a class that a test uses. */
export const fake = <T>(members: Partial<NoInfer<T>>): T => members as T
