package sidecarset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/afloat-project/afloat/api/pub"
)

// Records are what a pod knows about its SidecarSets, by name (SS-180).
type Records map[string]pub.SidecarSetRecord

// ReadRecords parses an annotation of a pod, pub.SidecarSetHash or pub.SidecarSetHashWithoutImage. It also
// accepts the form of old releases, which has only hashes (SS-182). An absent or empty annotation means no
// records.
func ReadRecords(text string) (Records, error) {
	records := Records{}
	if text == "" {
		return records, nil
	}

	var entries map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("reading the record of SidecarSets: %w", err)
	}

	for name, entry := range entries {
		var record pub.SidecarSetRecord
		if err := json.Unmarshal(entry, &record.Hash); err != nil {
			record = pub.SidecarSetRecord{}
			if err := json.Unmarshal(entry, &record); err != nil {
				return nil, fmt.Errorf("reading the record of SidecarSet %s: %w", name, err)
			}
		} else {
			record.SidecarSetName = name
		}
		records[name] = record
	}

	return records, nil
}

// String returns the value of the annotation.
func (r Records) String() string { return encode(r) }

// States are the last upgrades of a pod, by SidecarSet (SS-231).
type States map[string]pub.SidecarSetState

// ReadStates parses the annotation pub.SidecarSetInPlaceUpdateState.
func ReadStates(text string) (States, error) {
	states := States{}
	if text == "" {
		return states, nil
	}
	if err := json.Unmarshal([]byte(text), &states); err != nil {
		return nil, fmt.Errorf("reading the state of SidecarSets: %w", err)
	}
	if states == nil { // the annotation is null
		states = States{}
	}
	return states, nil
}

// String returns the value of the annotation.
func (s States) String() string { return encode(s) }

// WorkingContainers maps hot-upgrade sidecars to that of their two containers which works (SS-126).
type WorkingContainers map[string]string

// ReadWorkingContainers parses the annotation pub.SidecarSetWorkingHotUpgradeContainer.
func ReadWorkingContainers(text string) (WorkingContainers, error) {
	working := WorkingContainers{}
	if text == "" {
		return working, nil
	}
	if err := json.Unmarshal([]byte(text), &working); err != nil {
		return nil, fmt.Errorf("reading the working hot-upgrade containers: %w", err)
	}
	if working == nil { // the annotation is null
		working = WorkingContainers{}
	}
	return working, nil
}

// String returns the value of the annotation.
func (w WorkingContainers) String() string { return encode(w) }

// encode encodes a map of strings or plain structs, which never fails.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// ReadInjectedList parses the annotation pub.SidecarSetInjectedList: the SidecarSets of a pod, sorted
// (SS-182).
func ReadInjectedList(text string) []string { return pub.InjectedSidecarSets(text) }

// InjectedList returns the annotation with more names added. The added names are always kept, and the others
// as far as the maximum number allows.
func InjectedList(text string, more ...string) string {
	names := slices.DeleteFunc(ReadInjectedList(text),
		func(name string) bool { return slices.Contains(more, name) })
	names = append(names[:max(min(len(names), pub.MaxSidecarSets-len(more)), 0)], more...)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}
