package main

import (
	"os"
	"os/exec"
	"testing"
)

func TestARecordIsNotMistakenForALaterProcess(t *testing.T) {
	r, err := newRecord("self", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !r.alive() {
		t.Error("this very process counts as dead")
	}
	later := r
	later.Start--
	if later.alive() {
		t.Error("a process with another start counts as the recorded one")
	}
	boot := r
	boot.Boot = "another boot"
	if boot.alive() {
		t.Error("a process of another boot counts as the recorded one")
	}
}

func TestAZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := newRecord("sleep", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // killed
	if r.alive() {
		t.Error("an ended process counts as alive")
	}
}

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for name, tc := range map[string]struct {
		stat string
		want uint64
		ok   bool
	}{
		"plain":                    {"12 (etcd) S" + rest, 4711, true},
		"parenthesis in the name":  {"12 (a) b) R" + rest, 4711, true},
		"zombie":                   {"12 (etcd) Z" + rest, 0, false},
		"cut off":                  {"12 (etcd) S 1 2", 0, false},
		"nothing that is readable": {"", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseStat(tc.stat); got != tc.want || ok != tc.ok {
				t.Errorf("parseStat = %d, %v; want %d, %v", got, ok, tc.want, tc.ok)
			}
		})
	}
}
