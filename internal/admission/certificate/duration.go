package certificate

import (
	"fmt"
	"strconv"
	"time"
)

// DefaultRenewBefore is 180 days (OPS-021).
const DefaultRenewBefore = 180 * 24 * time.Hour

// ParseRenewBefore parses CERTS_RENEW_BEFORE: a number of days (d), months of 30 days (m) or years of 365
// days (y). Empty means the default. The upper bound dates from certificates that were valid for ten years,
// as those of OpenKruise are; policy.before limits the value for shorter lifetimes.
func ParseRenewBefore(text string) (time.Duration, error) {
	if text == "" {
		return DefaultRenewBefore, nil
	}

	days := map[byte]int{'d': 1, 'm': 30, 'y': 365}[text[len(text)-1]]
	number, err := strconv.Atoi(text[:len(text)-1])
	if err != nil || days == 0 || number <= 0 {
		return 0, fmt.Errorf("CERTS_RENEW_BEFORE %q: want a number and d, m or y, such as 180d", text)
	}

	const limit = 9 * 365 * 24 * time.Hour
	if number > int(limit.Hours()/24)/days {
		return 0, fmt.Errorf("CERTS_RENEW_BEFORE %q: it must be at most nine years", text)
	}
	return time.Duration(number*days) * 24 * time.Hour, nil
}
