package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/cputime"
)

func parse(t testing.TB, text, zone string) Schedule {
	t.Helper()
	s, _, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	location, err := Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	return s.In(location)
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// ACJ-021: what a schedule may be, and what the parser says otherwise; nothing makes it panic.
func TestParse(t *testing.T) {
	for _, text := range []string{"* * * * *", "0,30 9-17 1-15/2 JAN-mar MON,Wed", "*/5 ? * * ?", "@yearly", "@annually", "@monthly", "@weekly",
		"@daily", "@midnight", "@hourly", "@every 1h30m", "@every 1ns"} {
		if _, prefix, err := Parse(text); err != nil {
			t.Errorf("parsing %q: %v", text, err)
		} else if prefix != "" {
			t.Errorf("time zone of %q: got %q, want none", text, prefix)
		}
		for _, key := range []string{"TZ=", "CRON_TZ="} {
			if _, prefix, err := Parse(key + "Europe/Berlin " + text); err != nil {
				t.Errorf("parsing %q with %sEurope/Berlin: %v", text, key, err)
			} else if prefix != "Europe/Berlin" {
				t.Errorf("time zone of %q with %sEurope/Berlin: got %q", text, key, prefix)
			}
		}
	}
	for text, want := range map[string]string{
		"": "empty spec string", "* * * *": "expected exactly 5 fields", "* * * * * *": "expected exactly 5 fields", "60 * * * *": "above maximum",
		"* * 0 * *": "below minimum", "5-1 * * * *": "beyond end", "*/0 * * * *": "positive", "a * * * *": "failed to parse int",
		", * * * *": "names no value", "-1 * * * *": "failed to parse int", "1-2-3 * * * *": "too many hyphens", "1/2/3 * * * *": "too many slashes",
		"@often": "unrecognized descriptor", "@every": "unrecognized descriptor", "@every x": "duration", "@every 0s": "not greater than 0",
		"@every -1h": "not greater than 0", "@every 300000000h": "duration",
		"TZ=0": "a time zone, a space, and a schedule", "CRON_TZ=": "a time zone, a space", "TZ= * * * * *": "a time zone, a space",
		"TZ=UTC TZ=UTC * * * * *": "two time zones", "CRON_TZ=UTC CRON_TZ=": "two time zones", "TZ=UTC ": "empty spec string",
		strings.Repeat("1,", 600) + "1 * * * *": "at most 1024",
	} {
		if _, _, err := Parse(text); err == nil {
			t.Errorf("parsing %q: no error, want one with %q", text, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("parsing %q: got error %v, want one with %q", text, err, want)
		}
	}
}

// ACJ-021: whatever is written, reading it and asking for its times ends, and ends soon.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"* * * * *", "TZ=0", "CRON_TZ=UTC 0 0 29 2 *", "@every 1ns", "0 0 30 2 *", ", , , , ,", "*/99999999999 * * * *", "@"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, prefix, err := Parse(text)
		if err != nil {
			return
		}
		zone, err := Zone(prefix)
		if err != nil {
			zone = time.UTC
		}
		s = s.In(zone)
		from, until := at(t, "2020-01-01T00:00:00Z"), at(t, "2030-01-01T00:00:00Z")
		next, ok := s.Next(from, from)
		if ok && !next.After(from) {
			t.Errorf("%q: %s is not after %s", text, next, from)
		}
		latest, found := s.Latest(from, from, until)
		if want := ok && !next.After(until); found != want {
			t.Errorf("%q: a latest time: got %t, want %t; the next is %s", text, found, want, next)
		}
		if found && latest.Before(next) {
			t.Errorf("%q: the latest time %s is before the next, %s", text, latest, next)
		}
		if found && latest.After(until) {
			t.Errorf("%q: the latest time %s is after the end, %s", text, latest, until)
		}
		s.Count(from, from, until, 101)
	})
}

// ACJ-023 (part): names of the IANA database, which is embedded, and Local in no case.
func TestZone(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "UTC", "America/Argentina/Ushuaia", "Etc/GMT+5"} {
		if zone, err := Zone(name); err != nil {
			t.Errorf("time zone %s: %v", name, err)
		} else if zone.String() != name {
			t.Errorf("time zone %s: got %s", name, zone)
		}
	}
	for _, name := range []string{"", "Local", "local", "LOCAL", "Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "Europe", "zone.tab", "tzdata.zi"} {
		if _, err := Zone(name); err == nil {
			t.Errorf("time zone %q: no error", name)
		} else if !strings.Contains(err.Error(), "IANA time zone database") {
			t.Errorf("time zone %q: got error %v, want one that names the IANA database", name, err)
		}
	}
}

// ACJ-057 (part): wall-clock times that a change of the clock leaves out do not run; those that occur twice
// run once where hours are chosen, and each time where every hour is meant. Days around a change are neither
// passed over nor mistaken.
func TestChangesOfTheClock(t *testing.T) {
	for name, test := range map[string]struct {
		text, zone, after string
		want              []string
	}{
		"left out": {"30 2 * * *", "Europe/Berlin", "2024-03-29T12:00:00+01:00",
			[]string{"2024-03-30T02:30:00+01:00", "2024-04-01T02:30:00+02:00"}},
		"left out, others of its day run": {"30 1-3 * * *", "Europe/Berlin", "2024-03-31T00:00:00+01:00",
			[]string{"2024-03-31T01:30:00+01:00", "2024-03-31T03:30:00+02:00", "2024-04-01T01:30:00+02:00"}},
		"at the change": {"0 3 * * *", "Europe/Berlin", "2024-03-31T00:00:00+01:00",
			[]string{"2024-03-31T03:00:00+02:00", "2024-04-01T03:00:00+02:00"}},
		"twice": {"30 2 * * *", "Europe/Berlin", "2024-10-26T12:00:00+02:00",
			[]string{"2024-10-27T02:30:00+02:00", "2024-10-28T02:30:00+01:00"}},
		"twice, from in between": {"30 2 * * *", "Europe/Berlin", "2024-10-27T02:10:00+01:00", []string{"2024-10-28T02:30:00+01:00"}},
		"twice, several hours": {"*/30 2,3 * * *", "Europe/Berlin", "2024-10-27T01:00:00+02:00", []string{"2024-10-27T02:00:00+02:00",
			"2024-10-27T02:30:00+02:00", "2024-10-27T03:00:00+01:00", "2024-10-27T03:30:00+01:00", "2024-10-28T02:00:00+01:00"}},
		"every hour": {"30 * * * *", "Europe/Berlin", "2024-10-27T01:30:00+02:00", []string{"2024-10-27T02:30:00+02:00",
			"2024-10-27T02:30:00+01:00", "2024-10-27T03:30:00+01:00"}},
		"every hour, left out": {"0 * * * *", "Europe/Berlin", "2024-03-31T01:00:00+01:00",
			[]string{"2024-03-31T03:00:00+02:00", "2024-03-31T04:00:00+02:00"}},
		"half an hour": {"45 1 * * *", "Australia/Lord_Howe", "2024-04-06T12:00:00+11:00",
			[]string{"2024-04-07T01:45:00+11:00", "2024-04-08T01:45:00+10:30"}},
		"no midnight": {"0 0 * * *", "America/Santiago", "2024-09-06T12:00:00-04:00", []string{"2024-09-07T00:00:00-04:00", "2024-09-09T00:00:00-03:00"}},
		"noon of a day without midnight": {"0 12 8 9 *", "America/Santiago", "2024-09-01T00:00:00-04:00",
			[]string{"2024-09-08T12:00:00-03:00", "2025-09-08T12:00:00-03:00"}},
		"the day before one without midnight": {"30 5 7 9 *", "America/Santiago", "2024-09-07T20:00:00-04:00", []string{"2025-09-07T05:30:00-03:00"}},
		"a day that never was":                {"0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00-10:00", []string{"2012-12-30T12:00:00+14:00"}},
		"a zone without changes":              {"0 3 * * *", "Asia/Tokyo", "2024-03-31T00:00:00+09:00", []string{"2024-03-31T03:00:00+09:00"}},
	} {
		s, after := parse(t, test.text, test.zone), at(t, test.after)
		for _, want := range test.want {
			next, ok := s.Next(after, after)
			if !ok {
				t.Errorf("%s: no next time, want %s", name, want)
			}
			if got := next.Format(time.RFC3339); got != want {
				t.Errorf("%s: the next time is %s, want %s", name, got, want)
			}
			after = next
		}
	}
}

// ACJ-057 (part): @every counts from the anchor, in whole seconds, and no faster than each second.
func TestEveryCountsFromTheAnchorInWholeSeconds(t *testing.T) {
	anchor := at(t, "2024-01-01T00:00:10Z")
	for text, want := range map[string]time.Duration{"@every 90m": 90 * time.Minute, "@every 1ns": time.Second, "@every 1500ms": time.Second} {
		s := parse(t, text, "UTC")
		for _, after := range []time.Duration{-time.Hour, 0, want - 1} {
			if next, ok := s.Next(anchor, anchor.Add(after)); !ok {
				t.Errorf("%s: no next time %s after the anchor", text, after)
			} else if next.Sub(anchor) != want {
				t.Errorf("%s: the next time %s after the anchor: got %s, want %s",
					text, after, next.Sub(anchor), want)
			}
		}
		if next, _ := s.Next(anchor, anchor.Add(want)); next.Sub(anchor) != 2*want {
			t.Errorf("%s: the second time: got %s after the anchor, want %s", text, next.Sub(anchor), 2*want)
		}
		until := anchor.Add(7*want + 1)
		if latest, ok := s.Latest(anchor, anchor, until); !ok {
			t.Errorf("%s: no latest time", text)
		} else if latest.Sub(anchor) != 7*want {
			t.Errorf("%s: the latest time: got %s after the anchor, want %s",
				text, latest.Sub(anchor), 7*want)
		}
		if _, ok := s.Latest(anchor, anchor.Add(7*want), until); ok {
			t.Errorf("%s: a time that is over", text)
		}
	}
}

// ACJ-054 (part), ACJ-056 (part): ten years of minutes, times that are rare, and those that never come cost
// little; no pass over the whole gap.
func TestLongGapsCostLittle(t *testing.T) {
	from, until := at(t, "2014-06-01T00:00:30Z"), at(t, "2024-06-01T00:00:30Z")
	for text, want := range map[string]string{
		"* * * * *":             "2024-06-01T00:00:00Z",
		"@every 1s":             "2024-06-01T00:00:30Z",
		"0 0 29 2 *":            "2024-02-29T00:00:00Z",
		"0 0 31 12 *":           "2023-12-31T00:00:00Z",
		"5 4 * * SUN":           "2024-05-26T04:05:00Z",
		"0 0 30 2 *":            "",
		"59 23 31 4,6 *":        "",
		"0 12 13 * FRI":         "2024-05-31T12:00:00Z", // days of the month and of the week are alternatives
		"CRON_TZ=UTC 0 0 1 1 *": "2024-01-01T00:00:00Z",
	} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "America/Santiago"} {
			s := parse(t, text, zone)
			spent := cputime.Start(t)
			latest, ok := s.Latest(from, from, until)
			count := s.Count(from, from, until, 101)
			if took := spent(); took > time.Second {
				t.Errorf("times of %s in %s took %s to find, want 1s at most", text, zone, took)
			}
			if zone == "UTC" && ok != (want != "") {
				t.Errorf("%s: a latest time: got %t, want %t", text, ok, want != "")
			}
			if zone == "UTC" && ok && want != "" && !latest.Equal(at(t, want)) {
				t.Errorf("%s: the latest time: got %s, want %s", text, latest, want)
			}
			if ok != (count > 0) {
				t.Errorf("%s in %s: a latest time: %t, and %d times in all", text, zone, ok, count)
			}
			if count > 101 {
				t.Errorf("%s in %s: %d times, want 101 at most", text, zone, count)
			}
		}
	}
	next, ok := parse(t, "0 0 29 2 *", "UTC").Next(until, at(t, "2097-01-01T00:00:00Z"))
	if !ok {
		t.Error("2100 is no leap year: no next time, want one in 2104")
	}
	if next.Year() != 2104 {
		t.Errorf("2100 is no leap year: the next time is %s, want one in 2104", next)
	}
	if _, ok := (Schedule{}).Next(from, from); ok {
		t.Error("the zero value is never")
	}
}

// The latest of some times is the last that one finds by going from one to the next, in any zone.
func TestLatestIsTheLastOfAll(t *testing.T) {
	for _, text := range []string{"*/7 * * * *", "30 2 * * *", "0 */3 * * MON-FRI", "15 1,2,3 28-31 * *"} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe"} {
			s := parse(t, text, zone)
			for _, text := range []string{"2024-03-30T20:00:00Z", "2024-10-26T17:11:00Z", "2024-09-07T12:00:00Z", "2024-04-06T03:00:00Z"} {
				from := at(t, text)
				last, until := from, from.Add(50*time.Hour)
				for {
					next, _ := s.Next(from, last)
					if next.After(until) {
						break
					}
					last = next
				}
				latest, ok := s.Latest(from, from, until)
				if ok != last.After(from) {
					t.Errorf("%s in %s from %s: a latest time: got %t, want %t", text, zone, from, ok, !ok)
				}
				if ok && !latest.Equal(last) {
					t.Errorf("%s in %s from %s: the latest time is %s, want %s",
						text, zone, from, latest, last)
				}
			}
		}
	}
}

func BenchmarkLatestOfTenYears(b *testing.B) {
	s := parse(b, "* * * * *", "Europe/Berlin")
	until := at(b, "2024-06-01T00:00:30Z")
	from := until.AddDate(-10, 0, 0)
	for b.Loop() {
		s.Latest(from, from, until)
	}
}

func BenchmarkNever(b *testing.B) {
	s, from := parse(b, "0 0 30 2 *", "Europe/Berlin"), at(b, "2024-06-01T00:00:30Z")
	for b.Loop() {
		s.Next(from, from)
	}
}
