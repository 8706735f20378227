/** Text of the warning `descendants_ended`. It begins with the number, because the wire format has no other place for it. */
export const leftBehindText = (count: number): string =>
  count === 1
    ? '1 process that the command left running was ended with it'
    : `${count} processes that the command left running were ended with it`

/** The number at the beginning of that text. A peer with another text ended at least one process. */
export const leftBehindIn = (text: string): number => Number(/^[1-9]\d{0,8}(?= )/.exec(text)?.[0] ?? 1)
