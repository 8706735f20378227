/** Which arguments of a command are allowed. */
export const ALLOWED_ARGUMENTS = ['any', 'some', 'none'] as const

/** What a name of a program stands for, exactly as a run of it would find it, and whether one would be allowed. */
export interface CommandLookup {
  /** A run would start it; null: it is not allowed, and not told. */
  readonly found: boolean | null
  /** Where it stands, as a run starts it; null: nowhere. */
  readonly path: string | null
  /** The file that `path` leads to when every link is followed. */
  readonly real_path: string | null
  /** The directories in which a bare name was looked for, in their order; null: it was no bare name. */
  readonly searched: readonly string[] | null
  /** Why no run could start it; null: one could. */
  readonly problem: { readonly kind: 'not_found' | 'not_executable'; readonly detail: string } | null
  readonly allowed_arguments: (typeof ALLOWED_ARGUMENTS)[number]
  /** Why no run of it is allowed, the code of an error with it; null: one is. */
  readonly denial: { readonly code: string; readonly detail: string } | null
}
