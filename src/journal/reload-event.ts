/** An operator asked for the ACL file to be read again (SIGHUP), and what became of it. */
export interface ReloadEvent {
  readonly event: 'reload'
  /** `taken`: it allows less than the one before. `refused`: it allows more, and needs a restart. `invalid`: it is missing, or wrong. */
  readonly outcome: 'taken' | 'unchanged' | 'refused' | 'invalid'
  readonly file: string
  /** Of the file as it was read, hex; null: it could not be. */
  readonly sha256: string | null
  readonly detail: string | null
}
