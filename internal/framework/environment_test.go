package framework

import "testing"

// OPS-028 (part): the controllers of all kinds wait for what the environment waits for.
func TestControllersOfKindsWaitForTheCachesOfTheLeader(t *testing.T) {
	current, workers := make(chan struct{}), 1
	e := &Environment{Current: current, Workers: map[string]*int{"cloneset": &workers}}
	if got := e.Controller("cloneset").Current; got != e.Current {
		t.Errorf("waits for: got %v, want %v", got, e.Current)
	}
}
