package plugin

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"

	"github.com/spf13/pflag"
)

// profile holds kubectl's flags --profile and --profile-output, which ask for a Go profile of the command.
type profile struct{ name, output string }

func (p *profile) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&p.name, "profile", "none",
		"name of the profile to capture: none, cpu, heap, goroutine, threadcreate, block, mutex or trace")
	flags.StringVar(&p.output, "profile-output", "profile.pprof",
		"name of the file to write the profile to")
}

// start starts the profile. stop ends it and writes the file.
func (p *profile) start() (stop func() error, err error) {
	nothing := func() error { return nil }
	if p.name == "none" {
		return nothing, nil
	}

	written := pprof.Lookup(p.name)
	if written == nil && p.name != "cpu" && p.name != "trace" {
		return nil, fmt.Errorf("--profile: %q is no profile", p.name)
	}

	file, err := os.Create(p.output)
	if err != nil {
		return nil, fmt.Errorf("--profile-output: %w", err)
	}

	switch p.name {
	case "cpu":
		err = pprof.StartCPUProfile(file)
	case "trace":
		err = trace.Start(file)
	case "block":
		runtime.SetBlockProfileRate(1)
	case "mutex":
		runtime.SetMutexProfileFraction(1)
	}

	return func() error {
		// Neither call has an effect if that profile was not started.
		pprof.StopCPUProfile()
		trace.Stop()

		if written == nil {
			return file.Close()
		}
		return errors.Join(written.WriteTo(file, 0), file.Close())
	}, err
}
