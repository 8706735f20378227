/** A host that used an enrolment key. */
export interface PageEnrolledHost {
  readonly name: string
  readonly machine_id: string
  readonly granted_at: string
  /** True if the host has written its files. */
  readonly confirmed: boolean
}

/** An enrolment key, without its secret. */
export interface PageEnrolKey {
  readonly id: string
  readonly state: 'valid' | 'used_up' | 'expired' | 'revoked'
  /** Node set of the names of hosts, or null for their own names. */
  readonly names: string | null
  readonly labels: Readonly<Record<string, string>>
  readonly uses: number
  /** True if it brings ACL entries. */
  readonly acl: boolean
  readonly expires_at: string
  readonly hosts: readonly PageEnrolledHost[]
}

export interface PageEnrolKeys {
  readonly keys: readonly PageEnrolKey[]
}

export interface PageEnrolWish {
  readonly uses: number
  readonly expires_in_ms: number
  readonly names: string | null
  readonly labels: Readonly<Record<string, string>>
}

/** A new key. The token is shown once and is not stored. */
export interface PageEnrolled {
  readonly token: string
  /** A reason for which hosts may not reach this daemon, or null. */
  readonly warning: string | null
}
