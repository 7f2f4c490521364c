package framework

import (
	"context"
	"errors"
	"testing"
)

// OPS-028 (part): the controllers of all kinds wait for what the environment waits for.
func TestControllersOfKindsWaitForTheCachesOfTheLeader(t *testing.T) {
	waits, workers := errors.New("waits"), 1
	e := &Environment{Current: func(context.Context) error { return waits }, Workers: map[string]*int{"cloneset": &workers}}
	if got := e.Controller("cloneset").Current; got == nil || !errors.Is(got(t.Context()), waits) {
		t.Error("a controller does not wait for what the environment waits for")
	}
}
