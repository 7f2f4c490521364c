package timing

import "time"

const most = 100 * 365 * 24 * 60 * 60

// Seconds returns n seconds as a duration, bounded to a hundred years in either direction. Users write numbers
// such as 9999999999 for never, whose product would overflow and become a time in the past.
func Seconds(n int64) time.Duration {
	return time.Duration(max(min(n, most), -most)) * time.Second
}
