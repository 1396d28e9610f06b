// A server that speaks MongoDB's protocol, for tests: FerretDB on SQLite, in one
// executable. `scripts/servers.py` builds it; each test starts its own:
//
//	ferretdb --listen 127.0.0.1:27017 --dir FOLDER
//
// What it keeps is in the folder, and there again after a restart; beside it is a
// unix socket, called as mongod calls its own: mongodb-27017.sock. It ends on SIGTERM
// and SIGINT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// What this executable was built from; the build sets it.
var sources = "unknown"

func main() {
	listen := flag.String("listen", "127.0.0.1:27017", "where to listen")
	dir := flag.String("dir", ".", "where to keep the data; it must be there")
	showVersion := flag.Bool("version", false, "print the version and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("FerretDB", version(), "sources", sources)
		return
	}
	if err := serve(*listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// FerretDB itself tells its version only to its own executable.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/FerretDB/FerretDB" {
			return module.Version
		}
	}
	return "unknown"
}

func serve(listen, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "mongodb-"+port+".sock")
	// One that was killed has left it behind.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	options := &slog.HandlerOptions{Level: slog.LevelError}
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: listen, Unix: socket},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, options)),
		Handler:   "sqlite",
		SQLiteURL: "file:" + dir + "/",
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return server.Run(ctx)
}
